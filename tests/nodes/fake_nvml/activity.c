/* What happens over time: performance metrics between two samples, and events. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "scenario.h"

typedef struct { unsigned version, supported; } GpmSupport;
enum { METRICS_MAX = 477, XID_EVENT = 8 };

typedef struct { unsigned metric, result; double value; const char *words[3]; } Metric;
typedef struct { Device *device; } Sample;
typedef struct { unsigned version, count; Sample *first, *second; Metric metrics[METRICS_MAX]; } MetricsGet;
typedef struct { Device *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } Event;

static int events_told; /* lines "event GPU XID" of the scenario that have been handed out */

int nvmlGpmQueryDeviceSupport(Device *device, GpmSupport *to) {
    int result = enter(device, "gpm");
    to->supported = word("sm_active", (int)device->index, NULL) != NULL;
    return result;
}

int nvmlGpmSampleAlloc(Sample **to) {
    *to = calloc(1, sizeof **to);
    return *to ? SUCCESS : 20;
}

int nvmlGpmSampleFree(Sample *sample) {
    free(sample);
    return SUCCESS;
}

int nvmlGpmSampleGet(Device *device, Sample *sample) {
    sample->device = device;
    return enter(device, "gpm_sample");
}

int nvmlGpmMetricsGet(MetricsGet *get) {
    static const struct { unsigned metric; const char *key; } known[] = {{2, "sm_active"}, {5, "tensor_active"}, {10, "dram_active"}};
    for (unsigned i = 0; i < get->count && i < METRICS_MAX; i++) {
        Metric *metric = &get->metrics[i];
        metric->result = NOT_SUPPORTED;
        for (unsigned k = 0; k < sizeof known / sizeof *known; k++)
            if (known[k].metric == metric->metric) {
                const char *text = word(known[k].key, (int)get->first->device->index, NULL);
                metric->result = text ? SUCCESS : NOT_SUPPORTED;
                metric->value = text ? atof(text) : 0;
            }
    }
    return SUCCESS;
}

static int event_lines(void) {
    int count = 0;
    for (int line = line_after(-1, "event"); line >= 0; line = line_after(line, "event")) count++;
    return count;
}

int nvmlEventSetCreate(void **set) {
    static int only;
    scenario_watch();
    scenario_load();
    if (listed("events", "no")) return NOT_SUPPORTED;
    events_told = event_lines(); /* what was there before is over */
    *set = &only;
    return SUCCESS;
}

int nvmlEventSetFree(void *set) {
    (void)set;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(Device *device, unsigned long long types, void *set) {
    (void)set;
    int result = enter(device, "events");
    return result ? result : types & XID_EVENT ? SUCCESS : NOT_SUPPORTED;
}

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Like a driver's, the wait costs nothing until something happens. */
int nvmlEventSetWait_v2(void *set, Event *event, unsigned timeout_ms) {
    const long long deadline = now_ms() + timeout_ms;
    (void)set;
    scenario_load();
    for (;;) {
        int number_of = 0;
        for (int line = line_after(-1, "event"); line >= 0; line = line_after(line, "event"))
            if (number_of++ == events_told) {
                char *end;
                memset(event, 0, sizeof *event);
                event->device = &devices[strtoul(line_value(line), &end, 0) % GPUS_MAX];
                event->type = XID_EVENT;
                event->data = strtoull(end, NULL, 0);
                events_told++;
                return SUCCESS;
            }
        long long left = deadline - now_ms();
        if (left <= 0) return TIMEOUT;
        scenario_wait((unsigned)left);
    }
}
