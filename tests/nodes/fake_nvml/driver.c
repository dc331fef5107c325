/* The driver itself and who its GPUs are, and what is asked of them every second. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "scenario.h"

typedef struct { unsigned version; int margin; } Margin;
typedef struct { unsigned long long reference, violated; } Violation;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; } PciInfo;

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    scenario_load();
    while (listed("hang", "init")) pause();
    gpus = (unsigned)number("gpus", -1, 8);
    if (gpus > GPUS_MAX) gpus = GPUS_MAX;
    for (unsigned i = 0; i < GPUS_MAX; i++) devices[i].index = i;
    return (int)number("fail", -1, SUCCESS);
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int result) {
    switch (result) {
    case SUCCESS: return "Success";
    case INVALID: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case SHORT_BUFFER: return "Insufficient Size";
    case TIMEOUT: return "Timeout";
    case LOST: return "GPU is lost";
    case VERSION_MISMATCH: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *to, unsigned room) { return text_out(to, room, word("driver", -1, "580.00.fake")); }

int nvmlSystemGetNVMLVersion(char *to, unsigned room) { return text_out(to, room, word("nvml", -1, NULL)); }

int nvmlSystemGetCudaDriverVersion_v2(int *to) {
    if (!word("cuda", -1, NULL)) return NOT_SUPPORTED;
    *to = (int)number("cuda", -1, 0);
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    scenario_load();
    *count = (unsigned)number("count", -1, gpus); /* "count" may say another number than there was at first */
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if (index >= gpus) return INVALID;
    *device = &devices[index];
    return enter(*device, "handle");
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
    char text[WORD + 16];
    for (unsigned i = 0; i < gpus; i++) {
        snprintf(text, sizeof text, "%s-%04u", word("uuid_prefix", -1, "GPU-fake"), i);
        if (strcmp(word("uuid", (int)i, text), uuid)) continue;
        *device = &devices[i];
        return enter(*device, "handle");
    }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(Device *device, char *to, unsigned room) {
    char text[WORD + 16];
    int result = enter(device, "uuid");
    snprintf(text, sizeof text, "%s-%04u", word("uuid_prefix", -1, "GPU-fake"), device->index);
    return result ? result : text_out(to, room, word("uuid", (int)device->index, text));
}

int nvmlDeviceGetSerial(Device *device, char *to, unsigned room) {
    char text[WORD + 16];
    int result = enter(device, "serial");
    snprintf(text, sizeof text, "%s%04u", word("serial_prefix", -1, "16"), device->index);
    return result ? result : text_out(to, room, word("serial", (int)device->index, text));
}

int nvmlDeviceGetName(Device *device, char *to, unsigned room) {
    int result = enter(device, "name");
    return result ? result : text_out(to, room, word("name", (int)device->index, "Fake-H100"));
}

int nvmlDeviceGetMinorNumber(Device *device, unsigned *to) { return number_out(device, to, "minor", device->index); }

int nvmlDeviceGetPciInfo_v3(Device *device, PciInfo *pci) {
    int result = enter(device, "pci");
    if (result) return result;
    memset(pci, 0, sizeof *pci);
    pci->domain = (unsigned)number("domain", -1, 0);
    pci->bus = (unsigned)number("bus_base", -1, 0x10) + device->index;
    pci->id = (unsigned)number("pci_id", -1, 0x233010de);
    snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:00.0", pci->domain & 0xffff, pci->bus & 0xff);
    snprintf(pci->text, sizeof pci->text, "%08X:%02X:00.0", pci->domain, pci->bus & 0xff);
    return SUCCESS;
}

#define TEXT(function, key)                                                        \
    int function(Device *device, char *to, unsigned room) {                        \
        int result = enter(device, key);                                           \
        return result ? result : text_out(to, room, word(key, (int)device->index, NULL)); \
    }

TEXT(nvmlDeviceGetBoardPartNumber, "part_number")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom")

int nvmlDeviceGetArchitecture(Device *device, unsigned *to) { return number_out(device, to, "architecture", -1); }

int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    unsigned both;
    int result = number_out(device, &both, "compute_capability", -1); /* 90 is 9.0 */
    if (result == SUCCESS) *major = (int)both / 10, *minor = (int)both % 10;
    return result;
}

int nvmlDeviceGetPersistenceMode(Device *device, unsigned *to) { return number_out(device, to, "persistence", -1); }

int nvmlDeviceGetTemperature(Device *device, unsigned sensor, unsigned *to) {
    return sensor == 0 ? number_out(device, to, "temperature", 41) : INVALID;
}

int nvmlDeviceGetTemperatureThreshold(Device *device, unsigned kind, unsigned *to) {
    static const char *const keys[] = {"shutdown", "slowdown", "memory_max", "gpu_max"};
    return kind < 4 ? number_out(device, to, keys[kind], -1) : INVALID;
}

int nvmlDeviceGetMarginTemperature(Device *device, Margin *to) {
    return number_out(device, (unsigned *)&to->margin, "margin", -1);
}

int nvmlDeviceGetClockInfo(Device *device, unsigned clock, unsigned *to) {
    if (clock == 1) return number_out(device, to, "sm_clock", 1980);
    return clock == 2 ? number_out(device, to, "memory_clock", -1) : NOT_SUPPORTED;
}

/* The clocks that are set for programs; those they run at, here. */
int nvmlDeviceGetApplicationsClock(Device *device, unsigned clock, unsigned *to) {
    return number_out(device, to, clock == 2 ? "memory_clock" : "sm_clock", -1);
}

int nvmlDeviceGetMaxClockInfo(Device *device, unsigned clock, unsigned *to) {
    return clock == 1 ? number_out(device, to, "sm_clock_max", -1) : NOT_SUPPORTED;
}

int nvmlDeviceGetPowerUsage(Device *device, unsigned *to) { return number_out(device, to, "power_mw", 350000); }

int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *to) { return number_out(device, to, "power_limit_mw", -1); }

int nvmlDeviceGetPowerManagementDefaultLimit(Device *device, unsigned *to) {
    return number_out(device, to, "power_limit_default_mw", -1);
}

int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *to) {
    return large_out(device, to, "energy_mj", -1);
}

int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *to) {
    return large_out(device, to, "throttle", 0);
}

int nvmlDeviceGetViolationStatus(Device *device, unsigned policy, Violation *to) {
    static const char *const keys[] = {"throttled_power_ns", "throttled_thermal_ns", "throttled_sync_ns"};
    return policy < 3 ? large_out(device, &to->violated, keys[policy], -1) : NOT_SUPPORTED;
}

int nvmlDeviceGetUtilizationRates(Device *device, Utilization *to) {
    int result = number_out(device, &to->gpu, "gpu_percent", -1);
    return result ? result : number_out(device, &to->memory, "memory_percent", 0);
}

int nvmlDeviceGetPerformanceState(Device *device, unsigned *to) { return number_out(device, to, "performance_state", -1); }
