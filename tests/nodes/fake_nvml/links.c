/* PCIe, NVLink, the fabric, and the numbered field values. */
#include <stdio.h>
#include <string.h>

#include "scenario.h"

typedef struct { unsigned char uuid[16]; unsigned status, clique, state; } Fabric;
typedef struct { unsigned version; unsigned char uuid[16]; unsigned status, clique, state, health; } FabricV;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; } PciInfo;
typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type, result;
    union { double d; unsigned u; unsigned long long ull; } value;
} FieldValue;

int nvmlDeviceGetCurrPcieLinkGeneration(Device *device, unsigned *to) { return number_out(device, to, "pcie_generation", -1); }
int nvmlDeviceGetCurrPcieLinkWidth(Device *device, unsigned *to) { return number_out(device, to, "pcie_width", -1); }
int nvmlDeviceGetMaxPcieLinkGeneration(Device *device, unsigned *to) { return number_out(device, to, "pcie_generation_max", -1); }
int nvmlDeviceGetMaxPcieLinkWidth(Device *device, unsigned *to) { return number_out(device, to, "pcie_width_max", -1); }
int nvmlDeviceGetPcieReplayCounter(Device *device, unsigned *to) { return number_out(device, to, "pcie_replays", -1); }

/* A key of one link, "KEY.LINK.GPU", before that of all links, "KEY.LINK", before "KEY". */
static int of_link(Device *device, const char *key, unsigned link, unsigned long long *to) {
    char own[WORD];
    snprintf(own, sizeof own, "%s.%u", key, link);
    if (word(own, (int)device->index, NULL)) *to = number(own, (int)device->index, 0);
    else if (word(key, (int)device->index, NULL)) *to = number(key, (int)device->index, 0);
    else return NOT_SUPPORTED;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkState(Device *device, unsigned link, unsigned *active) {
    unsigned long long up = 1;
    int result = enter(device, "nvlink");
    if (result) return result;
    if (link >= number("nvlinks", (int)device->index, 0)) return word("nvlinks", -1, NULL) ? INVALID : NOT_SUPPORTED;
    of_link(device, "nvlink_active", link, &up);
    *active = (unsigned)up;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device *device, unsigned link, PciInfo *pci) {
    int result = enter(device, "nvlink_remote");
    if (result) return result;
    memset(pci, 0, sizeof *pci);
    pci->bus = 0xc0 + link % 4;
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->text, sizeof pci->text, "00000000:%02X:00.0", pci->bus);
    return SUCCESS;
}

/* What kind of way (2: NVLink) there is from one GPU to another: 0 is yes, 1 and above why not. */
int nvmlDeviceGetP2PStatus(Device *device, Device *other, unsigned kind, unsigned *status) {
    int result = enter(device, "p2p");
    if (result) return result;
    *status = kind == 2 && (!number("nvlinks", (int)device->index, 0) || !number("nvlinks", (int)other->index, 0)) ? 5 : 0;
    return SUCCESS;
}

int nvmlDeviceGetGpuFabricInfo(Device *device, Fabric *to) {
    int result = number_out(device, &to->state, "fabric_state", -1);
    return result ? result : number_out(device, &to->status, "fabric_status", 0);
}

int nvmlDeviceGetGpuFabricInfoV(Device *device, FabricV *to) {
    int result = number_out(device, &to->state, "fabric_state", -1);
    if (result == SUCCESS) result = number_out(device, &to->status, "fabric_status", 0);
    return result ? result : number_out(device, &to->health, "fabric_health", 0);
}

/* Which key holds a field; those of links have the link as scope. */
static const struct { unsigned field; const char *key; int of_link; } fields[] = {
    {29, "retired_corrected", 0}, {30, "retired_uncorrected", 0}, {31, "retirement_pending", 0},
    {74, "throttled_power_ns", 0}, {75, "throttled_thermal_ns", 0}, {76, "throttled_sync_ns", 0},
    {82, "memory_temperature", 0}, {90, "nvlink_speed_mbps", 0}, {83, "energy_mj", 0}, {94, "pcie_replays", 0}, {230, "recovery_action", 0},
    {138, "nvlink_tx_kib", 1}, {139, "nvlink_rx_kib", 1},
    {161, "nvlink_replays", 1}, {162, "nvlink_recoveries", 1}, {163, "nvlink_crc", 1},
    {219, "nvlink5_effective_errors", 1}, {269, "sw_thermal_slowdown_ns", 0}, {270, "hw_thermal_slowdown_ns", 0}, {271, "hw_power_brake_ns", 0},
    {202, "nvlink_tx_bytes", 1}, {204, "nvlink_rx_bytes", 1}, {215, "nvlink5_recoveries", 1}, {221, "nvlink5_symbols", 1},
};

int nvmlDeviceGetFieldValues(Device *device, int count, FieldValue *values) {
    int result = enter(device, "fields");
    for (int i = 0; result == SUCCESS && i < count; i++) {
        FieldValue *value = &values[i];
        value->result = NOT_SUPPORTED;
        value->type = 3; /* unsigned long long */
        for (unsigned f = 0; f < sizeof fields / sizeof *fields; f++) {
            if (fields[f].field != value->field) continue;
            if (fields[f].of_link) value->result = (unsigned)of_link(device, fields[f].key, value->scope, &value->value.ull);
            else if (value->field == 230 || word(fields[f].key, (int)device->index, NULL)) {
                value->value.ull = number(fields[f].key, (int)device->index, 0);
                value->result = SUCCESS;
            }
        }
    }
    return result;
}
