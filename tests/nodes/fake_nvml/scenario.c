/* The scenario: a text file that steers the fake driver, read again whenever it changes. */
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "scenario.h"

enum {
    SLEEP_US_MIN = 100, /* a shorter cost is spent awake: a sleep would last longer */
    LOOK_MS = 200,      /* between looks at the scenario where the kernel grants no inotify instance */
};

Device devices[GPUS_MAX];
unsigned gpus = 8;
static char lost[GPUS_MAX];

/* A table that is read is never written again: a thread that waits for events reads it beside the others. */
typedef struct { unsigned hash; char key[WORD], value[WORD]; } Line;
typedef struct { int count; Line lines[LINES_MAX]; } Table;

static Table *_Atomic table;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static struct timespec changed;
static long size = -1;

/* FNV-1a: every call of the driver looks several keys up, and must not cost much more than a real one. */
static unsigned hash_of(const char *key) {
    unsigned hash = 2166136261u;
    for (; *key; key++) hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash;
}

static int has_key(const Line *line, const char *key, unsigned hash) {
    return line->hash == hash && !strcmp(line->key, key);
}

static Table *parse(FILE *file) {
    Table *fresh = calloc(1, sizeof *fresh);
    char text[256], key[WORD], value[WORD];
    while (fresh && fresh->count < LINES_MAX && fgets(text, sizeof text, file)) {
        if (text[0] == '#' || sscanf(text, "%63s %63[^\n]", key, value) != 2) continue;
        Line *line = &fresh->lines[fresh->count++];
        strcpy(line->key, key);
        strcpy(line->value, value);
        line->hash = hash_of(key);
    }
    return fresh;
}

void scenario_load(void) {
    const char *path = getenv("FAKE_NVML_SCENARIO");
    struct stat now;
    if (!path || stat(path, &now) != 0) return;
    pthread_mutex_lock(&loading);
    if (now.st_size != size || now.st_mtim.tv_sec != changed.tv_sec || now.st_mtim.tv_nsec != changed.tv_nsec) {
        FILE *file = fopen(path, "r");
        Table *fresh = file ? parse(file) : NULL;
        if (file) fclose(file);
        if (fresh) {
            table = fresh;
            changed = now.st_mtim;
            size = now.st_size;
        }
    }
    pthread_mutex_unlock(&loading);
}

static int folder = -1; /* inotify: tells of every file that was written or moved into the scenario's folder */

void scenario_watch(void) {
    const char *path = getenv("FAKE_NVML_SCENARIO");
    char copy[PATH_MAX];
    if (folder >= 0 || !path || strlen(path) >= sizeof copy) return;
    folder = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (folder >= 0) inotify_add_watch(folder, dirname(strcpy(copy, path)), IN_CLOSE_WRITE | IN_MOVED_TO);
}

void scenario_wait(unsigned ms) {
    char seen[4096];
    struct pollfd changes = {folder, POLLIN, 0}; /* poll passes over a descriptor of -1 */
    poll(&changes, 1, (int)(folder < 0 && ms > LOOK_MS ? LOOK_MS : ms));
    while (folder >= 0 && read(folder, seen, sizeof seen) > 0) continue;
    scenario_load();
}

const char *word(const char *key, int index, const char *otherwise) {
    char own[WORD + 16];
    const char *found = otherwise, *mine = NULL;
    Table *now = table;
    snprintf(own, sizeof own, "%s.%d", key, index);
    unsigned of_all = hash_of(key), of_own = hash_of(own);
    for (int i = 0; now && i < now->count; i++) { /* the last line that says it counts: a scenario may begin with a preset */
        if (index >= 0 && has_key(&now->lines[i], own, of_own)) mine = now->lines[i].value;
        if (has_key(&now->lines[i], key, of_all)) found = now->lines[i].value;
    }
    return mine ? mine : found;
}

unsigned long long number(const char *key, int index, unsigned long long otherwise) {
    const char *text = word(key, index, NULL);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

int listed(const char *key, const char *value) {
    Table *now = table;
    unsigned hash = hash_of(key);
    for (int i = 0; now && i < now->count; i++)
        if (has_key(&now->lines[i], key, hash) && !strcmp(now->lines[i].value, value)) return 1;
    return 0;
}

int line_after(int after, const char *key) {
    Table *now = table;
    unsigned hash = hash_of(key);
    for (int i = after + 1; now && i < now->count; i++)
        if (has_key(&now->lines[i], key, hash)) return i;
    return -1;
}

const char *line_value(int line) {
    Table *now = table;
    return now && line < now->count ? now->lines[line].value : "";
}

static void spend(const char *name) {
    char key[WORD];
    snprintf(key, sizeof key, "cost_%s", name);
    unsigned long long us = number(key, -1, 0);
    if (!us) return;
    struct timespec begun, now, pause = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    if (us >= SLEEP_US_MIN) {
        nanosleep(&pause, NULL);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((unsigned long long)((now.tv_sec - begun.tv_sec) * 1000000 + (now.tv_nsec - begun.tv_nsec) / 1000) < us);
}

/* A write to a frozen file system waits in the kernel, where no signal reaches. */
static void blocked_write(const char *path) {
    int file = path ? open(path, O_WRONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    if (write(file, "x", 1) < 0) perror(path);
    close(file);
}

/* A hung GPU swallows the caller, a lost one says so, and a call may be told to fail: "error_NAME[.GPU] CODE". */
int enter(Device *device, const char *name) {
    char index[16], key[WORD];
    scenario_load();
    snprintf(index, sizeof index, "%u", device->index);
    snprintf(key, sizeof key, "%s %s", index, name);
    while (listed("hang", index) || listed("hang", key)) pause();
    blocked_write(word("writes", (int)device->index, NULL));
    if (listed("lost", index)) lost[device->index] = 1;
    else if (!listed("lost_until_init", index)) lost[device->index] = 0;
    if (lost[device->index]) return LOST;
    spend(name);
    snprintf(key, sizeof key, "error_%s", name);
    return (int)number(key, (int)device->index, SUCCESS);
}

int text_out(char *to, unsigned room, const char *text) {
    if (!text) return NOT_SUPPORTED;
    if (strlen(text) >= room) return SHORT_BUFFER;
    strcpy(to, text);
    return SUCCESS;
}

int large_out(Device *device, unsigned long long *to, const char *key, long otherwise) {
    int result = enter(device, key);
    if (result != SUCCESS) return result;
    if (otherwise < 0 && !word(key, (int)device->index, NULL)) return NOT_SUPPORTED;
    *to = number(key, (int)device->index, (unsigned long long)otherwise);
    return SUCCESS;
}

int number_out(Device *device, unsigned *to, const char *key, long otherwise) {
    unsigned long long value;
    int result = large_out(device, &value, key, otherwise);
    if (result == SUCCESS) *to = (unsigned)value;
    return result;
}
