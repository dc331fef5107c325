/* A machine's worth of GPUs that are not there: the NVML entry points that healthd calls through nvidia-ml-py.
 *
 * Steered by a text file (environment FAKE_NVML_SCENARIO), read again whenever it changes. One "key value" a line, '#'
 * begins a comment; "key.3 value" is for GPU 3 alone and wins over "key value":
 *
 *   gpus 8                 how many there are (read once, by nvmlInit)
 *   domain 0x1             PCI domain          bus_base 0x10       GPU i is at domain:(bus_base + i):00.0
 *   uuid_prefix GPU-node1  GPU i is <prefix>-000i                  name, driver, serial_prefix: words, no spaces
 *   temperature 41  sm_clock 1980  power_mw 350000  throttle 0x1
 *   ecc_corrected 0  ecc_uncorrected 0  remap_corrected 0  remap_uncorrected 0  pending 0  failure 0  recovery_action 0
 *   hang 3                 calls on GPU 3 never return             hang init: nvmlInit never returns
 *   lost 3                 calls on GPU 3 answer "GPU is lost"
 *   fail 999               nvmlInit answers this code
 *
 * "hang" and "lost" may stand several times. Layouts below are those of NVML's public interface.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SHORT_BUFFER = 7, LOST = 15 };
enum { GPUS_MAX = 64, LINES_MAX = 512, WORD = 64 };

typedef struct { unsigned index; } Device;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; } PciInfo;
typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type, result;
    union { double d; unsigned u; unsigned long ul; unsigned long long ull; long long sll; int i; } value;
} FieldValue;

static struct { char key[WORD], value[WORD]; } lines[LINES_MAX];
static int line_count;
static struct timespec changed;
static long size = -1;
static Device devices[GPUS_MAX];
static unsigned gpus = 8;

static void reload(void) {
    const char *path = getenv("FAKE_NVML_SCENARIO");
    struct stat now;
    if (!path || stat(path, &now) != 0) return;
    if (now.st_size == size && now.st_mtim.tv_sec == changed.tv_sec && now.st_mtim.tv_nsec == changed.tv_nsec) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    char text[256], key[WORD], value[WORD];
    line_count = 0;
    while (line_count < LINES_MAX && fgets(text, sizeof text, file)) {
        if (text[0] == '#' || sscanf(text, "%63s %63s", key, value) != 2) continue;
        strcpy(lines[line_count].key, key);
        strcpy(lines[line_count++].value, value);
    }
    fclose(file);
    changed = now.st_mtim;
    size = now.st_size;
}

static const char *word(const char *key, int index, const char *otherwise) {
    char own[WORD + 16];
    const char *found = otherwise;
    snprintf(own, sizeof own, "%s.%d", key, index);
    for (int i = 0; i < line_count; i++) {
        if (index >= 0 && !strcmp(lines[i].key, own)) return lines[i].value;
        if (!strcmp(lines[i].key, key)) found = lines[i].value;
    }
    return found;
}

static unsigned long number(const char *key, int index, unsigned long otherwise) {
    const char *text = word(key, index, NULL);
    return text ? strtoul(text, NULL, 0) : otherwise;
}

static int listed(const char *key, const char *value) {
    for (int i = 0; i < line_count; i++)
        if (!strcmp(lines[i].key, key) && !strcmp(lines[i].value, value)) return 1;
    return 0;
}

/* Every call on a device begins here: a hung GPU swallows the caller, a lost one says so. */
static int enter(Device *device) {
    char index[16];
    reload();
    snprintf(index, sizeof index, "%u", device->index);
    while (listed("hang", index)) pause();
    return listed("lost", index) ? LOST : SUCCESS;
}

static int text_out(char *to, unsigned room, const char *text) {
    if (strlen(text) >= room) return SHORT_BUFFER;
    strcpy(to, text);
    return SUCCESS;
}

static int number_out(Device *device, unsigned *to, const char *key, unsigned long otherwise) {
    int result = enter(device);
    if (result == SUCCESS) *to = (unsigned)number(key, (int)device->index, otherwise);
    return result;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    reload();
    while (listed("hang", "init")) pause();
    gpus = (unsigned)number("gpus", -1, 8);
    if (gpus > GPUS_MAX) gpus = GPUS_MAX;
    for (unsigned i = 0; i < GPUS_MAX; i++) devices[i].index = i;
    return (int)number("fail", -1, SUCCESS);
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int result) {
    switch (result) {
    case SUCCESS: return "Success";
    case INVALID: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case LOST: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *to, unsigned room) { return text_out(to, room, word("driver", -1, "580.00.fake")); }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = gpus;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if (index >= gpus) return INVALID;
    *device = &devices[index];
    return enter(*device);
}

int nvmlDeviceGetUUID(Device *device, char *to, unsigned room) {
    char text[WORD + 16];
    int result = enter(device);
    snprintf(text, sizeof text, "%s-%04u", word("uuid_prefix", -1, "GPU-fake"), device->index);
    return result ? result : text_out(to, room, word("uuid", (int)device->index, text));
}

int nvmlDeviceGetSerial(Device *device, char *to, unsigned room) {
    char text[WORD + 16];
    int result = enter(device);
    snprintf(text, sizeof text, "%s%04u", word("serial_prefix", -1, "16"), device->index);
    return result ? result : text_out(to, room, text);
}

int nvmlDeviceGetName(Device *device, char *to, unsigned room) {
    int result = enter(device);
    return result ? result : text_out(to, room, word("name", (int)device->index, "Fake-H100"));
}

int nvmlDeviceGetPciInfo_v3(Device *device, PciInfo *pci) {
    int result = enter(device);
    if (result) return result;
    memset(pci, 0, sizeof *pci);
    pci->domain = (unsigned)number("domain", -1, 0);
    pci->bus = (unsigned)number("bus_base", -1, 0x10) + device->index;
    pci->id = 0x233010de;
    snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:00.0", pci->domain & 0xffff, pci->bus & 0xff);
    snprintf(pci->text, sizeof pci->text, "%08X:%02X:00.0", pci->domain, pci->bus & 0xff);
    return SUCCESS;
}

int nvmlDeviceGetTemperature(Device *device, unsigned sensor, unsigned *to) {
    return sensor == 0 ? number_out(device, to, "temperature", 41) : INVALID;
}

int nvmlDeviceGetClockInfo(Device *device, unsigned clock, unsigned *to) {
    return clock == 1 ? number_out(device, to, "sm_clock", 1980) : NOT_SUPPORTED;
}

int nvmlDeviceGetPowerUsage(Device *device, unsigned *to) { return number_out(device, to, "power_mw", 350000); }

int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *to) {
    int result = enter(device);
    if (result == SUCCESS) *to = number("throttle", (int)device->index, 0);
    return result;
}

int nvmlDeviceGetTotalEccErrors(Device *device, unsigned kind, unsigned counter, unsigned long long *to) {
    int result = enter(device);
    (void)counter;
    if (result == SUCCESS) *to = number(kind ? "ecc_uncorrected" : "ecc_corrected", (int)device->index, 0);
    return result;
}

int nvmlDeviceGetRemappedRows(Device *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failure) {
    int result = enter(device), index = (int)device->index;
    if (result) return result;
    *corrected = (unsigned)number("remap_corrected", index, 0);
    *uncorrected = (unsigned)number("remap_uncorrected", index, 0);
    *pending = (unsigned)number("pending", index, 0);
    *failure = (unsigned)number("failure", index, 0);
    return SUCCESS;
}

int nvmlDeviceGetFieldValues(Device *device, int count, FieldValue *values) {
    int result = enter(device);
    for (int i = 0; result == SUCCESS && i < count; i++) {
        values[i].result = values[i].field == 230 ? SUCCESS : NOT_SUPPORTED;
        values[i].type = 1; /* unsigned int */
        values[i].value.u = (unsigned)number("recovery_action", (int)device->index, 0);
    }
    return result;
}
