"""Kernel records → facts: what the driver says of its GPUs, and who may say it."""

from __future__ import annotations

from collections.abc import Mapping

from healthd.facts import Raise
from healthd.samples.kernel import KernelRecord
from vocabulary.catalogue import Catalogue
from vocabulary.finding import Evidence
from vocabulary.identity import Component, ComponentKind
from vocabulary.injection import MARK, unmark
from vocabulary.wire import Gpu
from vocabulary.xid import KernelEvent, KernelEventKind, parse_line

LINE_CHARS_MAX = 500
SUMMARY_CHARS_MAX = 300


class XidCheck:
    """Knows this node's name, whether marked test faults count here, and the catalogue. Holds no state."""

    def __init__(self, node: str, catalogue: Catalogue, *, accept_injected: bool) -> None:
        self._node = node
        self._catalogue = catalogue
        self._accept_injected = accept_injected

    def judge(self, record: KernelRecord, gpus: Mapping[str, Gpu]) -> Raise | None:
        """What one record says; None if it is no evidence. `gpus` maps PCI addresses to the GPUs that are known.

        Only the kernel (facility 0) is a witness. A process may inject a fault by marking it as such, where the
        configuration allows it, and only for the node it names.
        """
        text = record.text
        if "Xid" not in text and "NVRM" not in text:  # SXid lines hold "Xid" too; most lines end here
            return None
        injected = MARK in text and (marked := unmark(text)) is not None
        if injected:
            if not self._accept_injected or marked is None or marked.node != self._node:
                return None
            text = marked.text
        elif record.facility != 0:
            return None
        event = parse_line(text)
        return None if event is None else self._fact(event, record, gpus, injected=injected)

    def _fact(self, event: KernelEvent, record: KernelRecord, gpus: Mapping[str, Gpu], *, injected: bool) -> Raise:
        return Raise(
            check="sxid" if event.kind is KernelEventKind.SXID else "xid",
            code=event.kind.value if event.code is None else str(event.code),
            component=_component(event, gpus),
            severity=self._catalogue.severity_of(event),
            summary=self._summary(event)[:SUMMARY_CHARS_MAX],
            at=record.at,
            event=True,
            origin=record.origin,
            injected=injected,
            evidence=_evidence(event, record),
        )

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
    return evidence
