"""The GPU values again, under dcgm-exporter's names and labels, for existing dashboards and alerts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from healthd.daemon_status import Status
from healthd.exporter.gpu_metrics import DCGM
from healthd.exporter.metric_families import GaugeMetricFamily, Metric
from healthd.findings.gpu_state import GpuState

XID = "DCGM_FI_DEV_XID_ERRORS"
FREE = "DCGM_FI_DEV_FB_FREE"
_MIB = 1 << 20


def export_dcgm_metrics(status: Status) -> Iterator[Metric]:
    """Return one family per value. Counters lack `_total` there, so they are untyped, which `rate()` accepts."""
    rows = [(_make_dcgm_labels(status, state), state) for state in status.states]
    for name, group in groupby(DCGM, lambda metric: metric.name):
        declared = next(iter(group))
        family = (GaugeMetricFamily if declared.kind == "gauge" else Metric)(name, declared.help)
        for labels, state in rows:
            value = getattr(state.latest, declared.field)
            if value is not None:
                family.add_sample(name, labels, value * declared.factor)
        yield family
    free = GaugeMetricFamily(FREE, "Memory not in use (MiB).")
    xid = GaugeMetricFamily(XID, "Code of the last Xid, or 0.")
    for labels, state in rows:
        latest = state.latest
        if latest.memory_total_bytes is not None and latest.memory_used_bytes is not None:
            free.add_sample(FREE, labels, (latest.memory_total_bytes - latest.memory_used_bytes) / _MIB)
        xid.add_sample(XID, labels, _find_last_xid(status, state))
    yield from (free, xid)


def _make_dcgm_labels(status: Status, state: GpuState) -> dict[str, str]:
    gpu = state.gpu
    minor = gpu.index if state.constants.minor is None else state.constants.minor
    return {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid,
        "pci_bus_id": f"0000{gpu.pci.upper()}",  # with NVML's eight-digit domain
        "device": f"nvidia{minor}",
        "modelName": gpu.name,
        "Hostname": status.node,
        "DCGM_FI_DRIVER_VERSION": status.inventory.driver if status.inventory else "",
    }


def _find_last_xid(status: Status, state: GpuState) -> int:
    own = (e for e in status.events if e.check == "xid" and e.component.pci == state.gpu.pci and not e.injected)
    seen = [event for event in own if event.code.isdigit()]
    return int(max(seen, key=lambda event: event.last_seen).code) if seen else 0
