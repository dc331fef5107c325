/* The GPUs' memory: how full, how faulty; and the processes and parts that hold it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scenario.h"

typedef struct { unsigned long long total, free, used; } Memory1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned version; unsigned long long counts[11]; unsigned exceeded; } SramStatus;
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } Process;

int nvmlDeviceGetMemoryInfo(Device *device, Memory1 *to) {
    int result = large_out(device, &to->total, "memory_total", -1);
    if (result == SUCCESS) result = large_out(device, &to->used, "memory_used", 0);
    to->free = to->total - to->used;
    return result;
}

int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory2 *to) {
    int result = large_out(device, &to->total, "memory_total", -1);
    if (result == SUCCESS) result = large_out(device, &to->used, "memory_used", 0);
    to->reserved = 0;
    to->free = to->total - to->used;
    return result;
}

int nvmlDeviceGetEccMode(Device *device, unsigned *current, unsigned *pending) {
    int result = number_out(device, current, "ecc", -1);
    *pending = (unsigned)number("ecc_pending", (int)device->index, *current);
    return result;
}

typedef struct { unsigned long long total, free, used; } Bar1;

int nvmlDeviceGetBAR1MemoryInfo(Device *device, Bar1 *to) {
    to->free = to->used = 0;
    return large_out(device, &to->total, "bar1_total", -1);
}

int nvmlDeviceGetComputeMode(Device *device, unsigned *to) { return number_out(device, to, "compute_mode", -1); }

int nvmlDeviceGetTotalEccErrors(Device *device, unsigned kind, unsigned counter, unsigned long long *to) {
    static const char *const keys[2][2] = {
        {"ecc_corrected", "ecc_uncorrected"}, {"ecc_corrected_aggregate", "ecc_uncorrected_aggregate"}};
    if (kind > 1 || counter > 1) return INVALID;
    return large_out(device, to, keys[counter][kind], 0);
}

/* Keys: "ecc_corrected_dram", "ecc_uncorrected_l2_cache", … */
int nvmlDeviceGetMemoryErrorCounter(Device *device, unsigned kind, unsigned counter, unsigned where, unsigned long long *to) {
    static const char *const memories[] = {
        "l1_cache", "l2_cache", "dram", "register_file", "texture_memory", "shared_memory", "cbu", "sram"};
    char key[WORD];
    if (kind > 1 || counter > 0 || where >= sizeof memories / sizeof *memories) return INVALID;
    snprintf(key, sizeof key, "ecc_%s_%s", kind ? "uncorrected" : "corrected", memories[where]);
    return large_out(device, to, key, -1);
}

int nvmlDeviceGetSramEccErrorStatus(Device *device, SramStatus *to) {
    return number_out(device, &to->exceeded, "sram_exceeded", -1);
}

int nvmlDeviceGetRemappedRows(Device *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failure) {
    int result = number_out(device, corrected, "remap_corrected", 0);
    if (result == SUCCESS) result = number_out(device, uncorrected, "remap_uncorrected", 0);
    if (result == SUCCESS) result = number_out(device, pending, "pending", 0);
    return result ? result : number_out(device, failure, "failure", 0);
}

int nvmlDeviceGetRowRemapperHistogram(Device *device, unsigned banks[5]) {
    int result = enter(device, "histogram");
    const char *text = word("histogram", (int)device->index, NULL); /* "640 0 0 0 0" */
    if (result) return result;
    if (!text) return NOT_SUPPORTED;
    return sscanf(text, "%u %u %u %u %u", banks, banks + 1, banks + 2, banks + 3, banks + 4) == 5 ? SUCCESS : INVALID;
}

int nvmlDeviceGetRetiredPages(Device *device, unsigned cause, unsigned *count, unsigned long long *addresses) {
    unsigned pages, room = *count;
    int result = number_out(device, &pages, cause ? "retired_uncorrected" : "retired_corrected", -1);
    if (result) return result;
    *count = pages;
    if (room < pages) return SHORT_BUFFER;
    for (unsigned i = 0; i < pages; i++) addresses[i] = i << 12;
    return SUCCESS;
}

int nvmlDeviceGetRetiredPagesPendingStatus(Device *device, unsigned *to) {
    return number_out(device, to, "retirement_pending", -1);
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    int result = number_out(device, current, "mig", -1);
    *pending = *current;
    return result;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *to) { return number_out(device, to, "mig_devices", 0); }

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **to) {
    (void)index;
    (void)to;
    int result = enter(device, "mig_device");
    return result ? result : NOT_FOUND;
}

/* "process.3 4711 1048576" is a process on GPU 3, with its bytes; as many lines as there are processes. */
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *to) {
    char key[WORD];
    unsigned found = 0, room = to ? *count : 0;
    int result = enter(device, "processes");
    if (result) return result;
    snprintf(key, sizeof key, "process.%u", device->index);
    for (int line = line_after(-1, key); line >= 0; line = line_after(line, key), found++)
        if (found < room) {
            char *end;
            memset(&to[found], 0, sizeof *to);
            to[found].pid = (unsigned)strtoul(line_value(line), &end, 0);
            to[found].memory = strtoull(end, NULL, 0);
        }
    *count = found;
    return found > room ? SHORT_BUFFER : SUCCESS;
}

/* Older programs ask by this name; the layout is the same. */
int nvmlDeviceGetComputeRunningProcesses_v2(Device *device, unsigned *count, Process *to) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, to);
}
