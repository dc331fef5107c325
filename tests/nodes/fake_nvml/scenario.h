/* What all parts of the fake driver share: the scenario, and how a call begins and ends. README.md says what it holds. */
#ifndef SCENARIO_H
#define SCENARIO_H

enum {
    SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SHORT_BUFFER = 7, TIMEOUT = 10, LOST = 15,
    VERSION_MISMATCH = 18,
};
enum { GPUS_MAX = 64, LINES_MAX = 1024, WORD = 64 };

typedef struct { unsigned index; } Device;

extern Device devices[GPUS_MAX];
extern unsigned gpus;

void scenario_load(void);                                        /* read it again if it has changed */
void scenario_watch(void);                                       /* from now on no change escapes `scenario_wait` */
void scenario_wait(unsigned ms);                                 /* until it may have changed, no longer than this; then read it */
const char *word(const char *key, int index, const char *otherwise);
unsigned long long number(const char *key, int index, unsigned long long otherwise);
int listed(const char *key, const char *value);                  /* whether a line says just that */
int line_after(int after, const char *key);                      /* the next line with that key, or -1 */
const char *line_value(int line);

int enter(Device *device, const char *name);                     /* every call on a device begins here */
int text_out(char *to, unsigned room, const char *text);
int number_out(Device *device, unsigned *to, const char *key, long otherwise);  /* below 0: not supported */
int large_out(Device *device, unsigned long long *to, const char *key, long otherwise);

#endif
