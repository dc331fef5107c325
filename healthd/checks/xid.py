"""Kernel records → facts: what the driver says of its GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from healthd.bursts import Bursts
from healthd.facts import Raise
from healthd.samples.kernel import KernelRecord
from healthd.switch_words import SwitchWords
from healthd.witness import Witness
from vocabulary.catalogue import Catalogue, said_by_switch
from vocabulary.finding import Evidence, Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.wire import Gpu
from vocabulary.xid import KernelEvent, KernelEventKind, parse_live_record
from vocabulary.xid_detail import decode

LINE_CHARS_MAX = 500
SUMMARY_CHARS_MAX = 300


class XidCheck:
    """Knows who may speak and what the catalogue says; remembers only which Xid came first."""

    def __init__(self, witness: Witness, catalogue: Catalogue) -> None:
        self._witness = witness
        self._catalogue = catalogue
        self._bursts = Bursts()
        self._switch_words = SwitchWords()

    def judge(self, record: KernelRecord, gpus: Mapping[str, Gpu]) -> Raise | None:
        """What one record says; None if it is no evidence. `gpus` maps PCI addresses to the GPUs that are known."""
        text = record.text
        if "Xid" not in text and "NVRM" not in text:  # SXid lines hold "Xid" too
            return None
        heard = self._witness.hear(record)
        event = None if heard is None else parse_live_record(heard.text)
        if heard is None or event is None:
            return None
        return self._fact(event, record, gpus, injected=heard.injected)

    def _fact(self, event: KernelEvent, record: KernelRecord, gpus: Mapping[str, Gpu], *, injected: bool) -> Raise:
        component = _component(event, gpus)
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
            | _evidence(event, record)
            | {"burst_first": burst.first, "burst_position": burst.position},
        )

    def _severity(self, event: KernelEvent, component: Component, at: float) -> Severity:
        if event.kind is not KernelEventKind.SXID:
            return self._catalogue.severity_of(event)
        said = self._switch_words.severity(component.key, event.code, said_by_switch(event), at)
        return said or self._catalogue.severity_of(event)

    def _reading(self, event: KernelEvent) -> Evidence:
        """What the catalogue makes of this very line."""
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


def _component(event: KernelEvent, gpus: Mapping[str, Gpu]) -> Component:
    if event.kind is KernelEventKind.SXID:
        name = "" if event.switch is None else f"nvswitch{event.switch}"
        return Component(ComponentKind.NVSWITCH, name=name, pci=event.pci)
    gpu = gpus.get(event.pci)
    if gpu is None:
        return Component(ComponentKind.GPU, pci=event.pci)
    return Component(ComponentKind.GPU, name=gpu.uuid, pci=gpu.pci, index=gpu.index)


def _evidence(event: KernelEvent, record: KernelRecord) -> Evidence:
    evidence: Evidence = {"line": record.text[:LINE_CHARS_MAX]}
    for name in ("pid", "process", "mig", "caused_by", "recovery_action", "link"):
        value = getattr(event, name)
        if value not in (None, ""):
            evidence[name] = value
    return evidence | decode(event)
