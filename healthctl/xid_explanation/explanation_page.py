"""Formats an explanation for people: first the action, then the reason, then all details."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping

from healthctl.rendering.blocks import escape_control_chars, format_facts
from healthctl.xid_explanation.explanation import Explanation
from vocabulary.fault_catalogue.line_reading import Basis

WIDTH = 100  # of the right-hand column
NAMES = {
    "older": "before A100",
    "ampere": "Ampere",
    "hopper": "Hopper",
    "blackwell": "Blackwell",
    "gb200": "GB200",
    "access": "access port",
    "trunk": "trunk port",
}
BASIS = {
    Basis.TABLE: "",
    Basis.LINE: "classified by the driver's own severity or the number in the line",
    Basis.ENTRY: "classified by its number alone",
}


def render_explanation(found: Explanation) -> str:
    """The whole text, without a final newline."""
    title = " ".join(part for part in ({"xid": "Xid", "sxid": "SXid"}[found.kind], str(found.code), found.name) if part)
    alias = f" ({found.alias})" if found.alias else ""
    meaning = "\n".join(textwrap.wrap(escape_control_chars(found.meaning), WIDTH + 14))
    return f"{title}{alias}\n{meaning}\n\n{format_facts([*_judgement_rows(found), *_knowledge_rows(found), *_line_rows(found)])}"


def _judgement_rows(found: Explanation) -> Iterator[tuple[str, str]]:
    reading = found.reading
    if reading is not None:
        yield from _wrap_rows("this line", [*reading.says, BASIS[reading.basis]])
        layout = f", layout {reading.layout}" if reading.layout else ""
        yield "unit", f"{reading.unit}{layout}" if reading.unit else ""
        yield "vendor's row", _format_vendor_actions(reading.immediate, reading.later)
    yield "severity", found.severity.value
    yield from _wrap_rows("do", [f"{found.advice} ({found.action})"])
    yield from _wrap_rows("why", [found.why])
    yield "blame", found.blame
    yield "causes", ", ".join(found.causes)
    yield "process", found.process


def _knowledge_rows(found: Explanation) -> Iterator[tuple[str, str]]:
    yield (
        "vendor says",
        _format_vendor_actions(found.nvidia_immediate, found.nvidia_investigatory) or _explain_missing_bucket(found),
    )
    yield from _wrap_rows("others", _format_pairs(found.others))
    yield from _wrap_rows("look at", found.look_at)
    yield from _wrap_rows("differs", _format_pairs(found.differs))
    yield from _wrap_rows("if fatal", _format_pairs(found.ports))
    yield "used on", " ".join(found.gpus)
    yield "with Xid 154", f"from driver {found.recovery_since}" if found.recovery_since else ""
    yield from _wrap_rows("note", [found.note])
    yield from _wrap_rows("sources", found.sources)
    yield "catalogue", found.catalogue


def _line_rows(found: Explanation) -> Iterator[tuple[str, str]]:
    event = found.event
    if event is None:
        return
    yield "PCI", event.pci
    yield "MIG", event.mig
    yield "switch", "" if event.switch is None else str(event.switch)
    yield "link", "" if event.link is None else str(event.link)
    yield "pid", f"{event.pid} {event.process}".strip() if event.pid is not None else ""
    yield "caused by", f"Xid {event.caused_by}" if event.caused_by else ""
    yield "detail", event.detail


def _format_vendor_actions(immediate: str, later: str) -> str:
    return "; when it recurs: ".join(part for part in (immediate, later) if part)


def _explain_missing_bucket(found: Explanation) -> str:
    return "none: it does not classify this number" if found.kind == "xid" and found.known else ""


def _format_pairs(said: Mapping[str, str]) -> list[str]:
    return [f"{NAMES.get(name, name)}: {text}" for name, text in said.items()]


def _wrap_rows(name: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Rows of one heading, which is shown only on the first; long rows continue on the next."""
    for text in texts:
        for number, part in enumerate(textwrap.wrap(escape_control_chars(text), WIDTH, break_on_hyphens=False)):
            yield name, f"  {part}" if number else part
            name = ""
