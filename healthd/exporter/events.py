"""What happened on this node, counted since the daemon was started."""

from __future__ import annotations

from collections.abc import Iterator

from healthd.event_counts import EventCount
from healthd.exporter.families import CounterMetricFamily, GaugeMetricFamily, Metric
from healthd.status import Status

_XID_LABELS = ("gpu", "uuid", "pci", "code", "injected")
_LABELS = ("check", "code", "component", "injected")


def events(status: Status) -> Iterator[Metric]:
    """Xids by GPU and code, everything else by component; each with the time it was last seen."""
    by_pci = {gpu.pci: gpu for gpu in status.gpus}

    def xid_labels(event: EventCount) -> list[str]:
        gpu = by_pci.get(event.component.pci)
        index, uuid = (str(gpu.index), gpu.uuid) if gpu else ("", "")
        return [index, uuid, event.component.pci, event.code, str(event.injected).lower()]

    def other_labels(event: EventCount) -> list[str]:
        return [event.check, event.code, event.component.key, str(event.injected).lower()]

    xids = sorted((e for e in status.events if e.check == "xid"), key=lambda e: (e.component.pci, e.code, e.injected))
    yield from _counted("healthd_xid", "Xid errors of the GPU.", _XID_LABELS, [(xid_labels(e), e) for e in xids])
    others = sorted(((other_labels(e), e) for e in status.events if e.check != "xid"), key=lambda pair: pair[0])
    yield from _counted("healthd_event", "Events of other checks.", _LABELS, others)


def _counted(
    name: str, help_text: str, labels: tuple[str, ...], rows: list[tuple[list[str], EventCount]]
) -> Iterator[Metric]:
    counter = CounterMetricFamily(f"{name}s_total", help_text, labels=labels)
    last = GaugeMetricFamily(f"{name}_last_seen_timestamp_seconds", "When it was last seen.", labels=labels)
    for values, event in rows:
        counter.add_metric(values, event.count)
        last.add_metric(values, event.last_seen)
    yield from (counter, last)
