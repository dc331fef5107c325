"""Kernel records → facts: everything but the driver's Xids. Most records match no family's keywords and end there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from healthd.findings.facts import Clear, Fact, Raise, make_gpu_component
from healthd.kernel_log.message_patterns.line_pattern import LinePattern, PatternFamily, match_pattern
from healthd.kernel_log.record_authenticity import RecordAttribution, RecordAuthenticator
from healthd.samples.kernel_record import KernelRecord
from vocabulary.finding import Evidence, Severity
from vocabulary.identity import Component, canonical_pci
from vocabulary.messages.wire import Gpu

LINE_CHARS_MAX = 500
VALUE_CHARS_MAX = 120


class KernelMessageCheck:
    """Stateless."""

    def __init__(self, witness: RecordAuthenticator, families: Sequence[PatternFamily]) -> None:
        self._witness = witness
        self._families = tuple(families)
        self._words = tuple((word, family) for family in families for word in family.words)

    def judge(self, record: KernelRecord, gpus: Mapping[str, Gpu]) -> Fact | None:
        """Return the fact from one record; None if it is no evidence. `gpus` maps PCI addresses to the known GPUs."""
        text = record.text
        for word, family in self._words:
            if word in text and (fact := self._read(family, record, gpus)) is not None:
                return fact
        return None

    def _read(self, family: PatternFamily, record: KernelRecord, gpus: Mapping[str, Gpu]) -> Fact | None:
        heard = self._witness.hear(record)
        if heard is None:
            return None
        form, match = match_pattern(family, heard.text[:LINE_CHARS_MAX])
        if form is None or match is None:
            return None
        return _make_message_fact(family, form, match.groupdict(), heard, record, gpus)


def _make_message_fact(
    family: PatternFamily,
    form: LinePattern,
    found: Mapping[str, str | None],
    heard: RecordAttribution,
    record: KernelRecord,
    gpus: Mapping[str, Gpu],
) -> Fact:
    component = _make_message_component(family, found, gpus)
    if form.clears and not heard.injected:  # a test must not clear a real finding
        return Clear(check=family.check, code=form.code, component=component, at=record.at, by=form.summary)
    evidence: Evidence = {"line": heard.text[:LINE_CHARS_MAX]}
    evidence |= {
        name: value[:VALUE_CHARS_MAX] for name, value in found.items() if value and name not in ("pci", "place")
    }
    where = "" if component.key == f"{component.kind.value}:all" else f" ({component})"
    return Raise(
        check=family.check,
        code=form.code,
        component=component,
        severity=Severity.INFO if _is_on_user_device(family, found) else form.severity,
        summary=form.summary + where,
        at=record.at,
        event=True,
        origin=record.origin,
        injected=heard.injected,
        evidence=evidence,
    )


def _is_on_user_device(family: PatternFamily, found: Mapping[str, str | None]) -> bool:
    """Return whether the line is about a device backed by a user's file, such as a loop device."""
    names = (found.get("place"), found.get("disk"))
    return family.users_devices is not None and any(name and family.users_devices.match(name) for name in names)


def _make_message_component(
    family: PatternFamily, found: Mapping[str, str | None], gpus: Mapping[str, Gpu]
) -> Component:
    address = found.get("pci")
    if address:
        pci = canonical_pci(address)
        gpu = gpus.get(pci)
        return make_gpu_component(gpu) if gpu is not None else Component(family.kind, pci=pci)
    return Component(family.kind, name=found.get("place") or "")
