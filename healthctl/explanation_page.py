"""An explanation as a page for people: what to do first, then why, then everything that is known."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping

from healthctl.explanation import Explanation
from healthctl.output import clean, facts
from vocabulary.reading import Basis

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
    Basis.LINE: "judged by the driver's own word or number in it",
    Basis.ENTRY: "judged by its number alone",
}


def page(found: Explanation) -> str:
    """The whole text, without an end of line."""
    title = " ".join(part for part in ({"xid": "Xid", "sxid": "SXid"}[found.kind], str(found.code), found.name) if part)
    alias = f" ({found.alias})" if found.alias else ""
    meaning = "\n".join(textwrap.wrap(clean(found.meaning), WIDTH + 14))
    return f"{title}{alias}\n{meaning}\n\n{facts([*_judgement(found), *_knowledge(found), *_line(found)])}"


def _judgement(found: Explanation) -> Iterator[tuple[str, str]]:
    reading = found.reading
    if reading is not None:
        yield from _rows("this line", [*reading.says, BASIS[reading.basis]])
        layout = f", layout {reading.layout}" if reading.layout else ""
        yield "unit", f"{reading.unit}{layout}" if reading.unit else ""
        yield "vendor's row", _vendor(reading.immediate, reading.later)
    yield "severity", found.severity.value
    yield from _rows("do", [f"{found.advice} ({found.action})"])
    yield from _rows("why", [found.why])
    yield "blame", found.blame
    yield "causes", ", ".join(found.causes)
    yield "process", found.process


def _knowledge(found: Explanation) -> Iterator[tuple[str, str]]:
    yield "vendor says", _vendor(found.nvidia_immediate, found.nvidia_investigatory) or _no_bucket(found)
    yield from _rows("others", _pairs(found.others))
    yield from _rows("look at", found.look_at)
    yield from _rows("differs", _pairs(found.differs))
    yield from _rows("if fatal", _pairs(found.ports))
    yield "used on", " ".join(found.gpus)
    yield "with Xid 154", f"from driver {found.recovery_since}" if found.recovery_since else ""
    yield from _rows("note", [found.note])
    yield from _rows("sources", found.sources)
    yield "catalogue", found.catalogue


def _line(found: Explanation) -> Iterator[tuple[str, str]]:
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


def _vendor(immediate: str, later: str) -> str:
    return "; when it recurs: ".join(part for part in (immediate, later) if part)


def _no_bucket(found: Explanation) -> str:
    return "nothing: it has no bucket for this number" if found.kind == "xid" and found.known else ""


def _pairs(said: Mapping[str, str]) -> list[str]:
    return [f"{NAMES.get(name, name)}: {text}" for name, text in said.items()]


def _rows(name: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Rows of one heading, which stands only before the first; what is too long goes on in the next."""
    for text in texts:
        for number, part in enumerate(textwrap.wrap(clean(text), WIDTH, break_on_hyphens=False)):
            yield name, f"  {part}" if number else part
            name = ""
