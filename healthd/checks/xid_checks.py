"""Kernel records → facts: the driver's Xids."""

from __future__ import annotations

from collections.abc import Mapping

from healthd.findings.facts import Raise
from healthd.kernel_log.nvswitch_severity import SwitchSeverityTracker
from healthd.kernel_log.record_authenticity import RecordAuthenticator
from healthd.kernel_log.xid_bursts import XidBursts
from healthd.samples.kernel_record import KernelRecord
from vocabulary.driver_log.xid_detail import decode_xid_detail
from vocabulary.driver_log.xid_line import KernelEvent, KernelEventKind, parse_live_record
from vocabulary.fault_catalogue.catalogue import Catalogue, severity_from_sxid_line
from vocabulary.finding import Evidence, Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import Gpu

LINE_CHARS_MAX = 500
SUMMARY_CHARS_MAX = 300


class XidCheck:
    """Checks the record's authenticity and consults the catalogue; remembers only which Xid came first."""

    def __init__(self, witness: RecordAuthenticator, catalogue: Catalogue) -> None:
        self._witness = witness
        self._catalogue = catalogue
        self._bursts = XidBursts()
        self._switch_words = SwitchSeverityTracker()

    def judge(self, record: KernelRecord, gpus: Mapping[str, Gpu]) -> Raise | None:
        """Return the fact from one record; None if it is no evidence. `gpus` maps PCI addresses to the known GPUs."""
        text = record.text
        if "Xid" not in text and "NVRM" not in text:  # SXid lines hold "Xid" too
            return None
        heard = self._witness.hear(record)
        event = None if heard is None else parse_live_record(heard.text)
        if heard is None or event is None:
            return None
        return self._fact(event, record, gpus, injected=heard.injected)

    def _fact(self, event: KernelEvent, record: KernelRecord, gpus: Mapping[str, Gpu], *, injected: bool) -> Raise:
        component = _make_event_component(event, gpus)
        code = event.kind.value if event.code is None else str(event.code)
        burst = self._bursts.add(f"{component.pci or component.key}{injected}", code, record.at)
        return Raise(
            check="sxid" if event.kind is KernelEventKind.SXID else "xid",
            code=code,
            component=component,
            severity=self._severity(event, component, record.at),
            summary=self._summary(event)[:SUMMARY_CHARS_MAX],
            at=record.at,
            event=True,
            origin=record.origin,
            injected=injected,
            evidence=self._reading(event)
            | _collect_event_evidence(event, record)
            | {"burst_first": burst.first, "burst_position": burst.position},
        )

    def _severity(self, event: KernelEvent, component: Component, at: float) -> Severity:
        if event.kind is not KernelEventKind.SXID:
            return self._catalogue.severity_of(event)
        said = self._switch_words.severity(component.key, event.code, severity_from_sxid_line(event), at)
        return said or self._catalogue.severity_of(event)

    def _reading(self, event: KernelEvent) -> Evidence:
        """Return the catalogue's reading of this line."""
        reading = self._catalogue.reading(event)
        evidence: Evidence = {"advice": reading.action.value}
        if reading.says:
            evidence["reading"] = " ".join(reading.says)[:SUMMARY_CHARS_MAX]
        return evidence

    def _summary(self, event: KernelEvent) -> str:
        if event.kind is not KernelEventKind.XID or event.code is None:
            return event.detail or event.kind.value.replace("_", " ")
        entry = self._catalogue.entry(event.code)
        return f"Xid {event.code}: {event.detail or entry.meaning}"


def _make_event_component(event: KernelEvent, gpus: Mapping[str, Gpu]) -> Component:
    if event.kind is KernelEventKind.SXID:
        name = "" if event.switch is None else f"nvswitch{event.switch}"
        return Component(ComponentKind.NVSWITCH, name=name, pci=event.pci)
    gpu = gpus.get(event.pci)
    if gpu is None:
        return Component(ComponentKind.GPU, pci=event.pci)
    return Component(ComponentKind.GPU, name=gpu.uuid, pci=gpu.pci, index=gpu.index)


def _collect_event_evidence(event: KernelEvent, record: KernelRecord) -> Evidence:
    evidence: Evidence = {"line": record.text[:LINE_CHARS_MAX]}
    for name in ("pid", "process", "mig", "caused_by", "recovery_action", "link"):
        value = getattr(event, name)
        if value not in (None, ""):
            evidence[name] = value
    return evidence | decode_xid_detail(event)
