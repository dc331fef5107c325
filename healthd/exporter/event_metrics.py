"""Events on this node, counted since the daemon started.

A counter that began at 1 would hide its first event from `increase()`, which compares two samples. So each GPU has its
total, and a counter for each critical Xid, at 0 before anything happens. A counter for every existing code would be 176
per GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from healthd.daemon_status import Status
from healthd.exporter.metric_families import CounterMetricFamily, GaugeMetricFamily, Metric
from healthd.findings.event_counters import EventCount
from vocabulary.fault_catalogue.catalogue import Catalogue
from vocabulary.finding import Severity

_XID_LABELS = ("gpu", "uuid", "pci", "code", "injected")
_GPU_LABELS = ("gpu", "uuid", "pci", "injected")
_LABELS = ("check", "code", "component", "injected")


def list_critical_xids(catalogue: Catalogue) -> tuple[str, ...]:
    """Return the codes that the catalogue calls an error or fatal."""
    grave = (Severity.ERROR, Severity.FATAL)
    return tuple(str(code) for code, entry in sorted(catalogue.xids.items()) if entry.severity in grave)


def export_events(status: Status, critical_xids: Sequence[str] = ()) -> Iterator[Metric]:
    """Return Xids by GPU and code, everything else by component; each with the time it was last seen.

    Each GPU has a counter for `list_critical_xids` from the beginning.
    """
    by_pci = {gpu.pci: gpu for gpu in status.gpus}

    def xid_labels(event: EventCount) -> list[str]:
        gpu = by_pci.get(event.component.pci)
        index, uuid = (str(gpu.index), gpu.uuid) if gpu else ("", "")
        return [index, uuid, event.component.pci, event.code, str(event.injected).lower()]

    def other_labels(event: EventCount) -> list[str]:
        return [event.check, event.code, event.component.key, str(event.injected).lower()]

    xids = sorted((e for e in status.events if e.check == "xid"), key=lambda e: (e.component.pci, e.code, e.injected))
    counter, last = _make_event_families(
        "healthd_xid", "Xid errors of the GPU.", _XID_LABELS, [(xid_labels(e), e) for e in xids]
    )
    seen = {(e.component.pci, e.code) for e in xids if not e.injected}
    for gpu in status.gpus:
        for code in (code for code in critical_xids if (gpu.pci, code) not in seen):
            counter.add_metric([str(gpu.index), gpu.uuid, gpu.pci, code, "false"], 0)
    yield from (counter, last)
    yield _make_xid_totals(status, xids)
    others = sorted(((other_labels(e), e) for e in status.events if e.check != "xid"), key=lambda pair: pair[0])
    yield from _make_event_families("healthd_event", "Events of other checks.", _LABELS, others)


def _make_xid_totals(status: Status, xids: Sequence[EventCount]) -> Metric:
    family = CounterMetricFamily("healthd_gpu_xids_total", "Xid errors of the GPU, of all codes.", labels=_GPU_LABELS)
    for gpu in status.gpus:
        for injected in (False, True):
            count = sum(e.count for e in xids if e.component.pci == gpu.pci and e.injected is injected)
            family.add_metric([str(gpu.index), gpu.uuid, gpu.pci, str(injected).lower()], count)
    return family


def _make_event_families(
    name: str, help_text: str, labels: tuple[str, ...], rows: list[tuple[list[str], EventCount]]
) -> tuple[CounterMetricFamily, GaugeMetricFamily]:
    counter = CounterMetricFamily(f"{name}s_total", help_text, labels=labels)
    last = GaugeMetricFamily(f"{name}_last_seen_timestamp_seconds", "When it was last seen.", labels=labels)
    for values, event in rows:
        counter.add_metric(values, event.count)
        last.add_metric(values, event.last_seen)
    return counter, last
