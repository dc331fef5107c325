"""A document for a terminal: the verdict first, then what is wrong, where, and what to do; then everything measured."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import click

from preflight.report.advice import advice, told
from preflight.report.columns import columns
from preflight.report.dates import moment
from preflight.report.pairs import Pairs, pairs, without_pairs
from preflight.report.tables import Group, Reading, Wrong, bad, device_names, groups, kinds, rows, tightest
from preflight.report.wording import (
    OUTCOMES,
    SOURCES,
    THE_NODE,
    clean,
    limits,
    number,
    place,
    share,
)
from preflight.results import Document, Outcome, Result, Verdict
from vocabulary.counts import counted
from vocabulary.spans import length

WIDTH = 110
WRONG_SHOWN = 30
LOCATIONS_SHOWN = 4
_INK = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.HANG: "red"}
_VERDICT_INK = {Verdict.PASS: "green", Verdict.FAIL: "red"}
_UNSURE = "yellow"


def page(document: Document, *, colour: bool = False, width: int = WIDTH) -> str:
    """The document as text without a final line break. Nothing in it can steer a terminal but our own colours."""
    grave, rest = told(document)
    matrices = pairs(document.results)
    parts = [
        "\n".join((_head(document, colour=colour), *_tested(document, width))),
        *_wrong(grave, colour=colour, width=width),
        "\n".join(_aside(document, rest, width)),
        "\n".join(_grid(document, colour=colour)),
        *("\n".join(_matrix(each)) for each in matrices),
        "\n".join(_figures(without_pairs(groups(document.results), matrices), colour=colour)),
        "\n".join(_remarks(document, width)),
    ]
    return "\n\n".join(part for part in parts if part)


def heading(document: Document) -> str:
    """The verdict and how it came about, in one line."""
    partly = ", in part" if not document.complete else ""
    rounds = f", {document.rounds} rounds" if document.rounds > 1 else ""
    return (
        f"{clean(document.node)}: {document.verdict.value.upper()} at level {clean(document.level)}{partly}"
        f" in {length(document.seconds)}{rounds}, {moment(document.started_at)}"
    )


def _head(document: Document, *, colour: bool) -> str:
    line = _painted(heading(document), _VERDICT_INK.get(document.verdict, _UNSURE), colour=colour, bold=True)
    if not document.injected:
        return line
    return f"{line}\ninjected: {clean(', '.join(document.injected))} (a fault committed on request)"


def _tested(document: Document, width: int) -> Iterator[str]:
    """Which devices, and the versions that matter."""
    said = [f"{kind}: {', '.join(device.name for device in devices)}" for kind, devices in kinds(document.devices)]
    if said:
        yield from _field("tested", "; ".join(said), width)
    if document.software:
        yield from _field("with", ", ".join(f"{name} {version}" for name, version in document.software.items()), width)


def _wrong(found: Sequence[Wrong], *, colour: bool, width: int) -> Iterator[str]:
    for wrong in found[:WRONG_SHOWN]:
        result = wrong.first
        word = _painted(OUTCOMES[result.outcome], _INK.get(result.outcome, _UNSURE), colour=colour, bold=True)
        lines = [f"{word} {clean(wrong.where)}", *_field("why", result.reason or "it gave no reason", width)]
        for location in result.locations[:LOCATIONS_SHOWN]:
            lines += _field("where", place(location), width)
        if (more := len(result.locations) - LOCATIONS_SHOWN) > 0:
            lines += _field("", f"and {counted(more, 'more place')}", width)
        yield "\n".join([*lines, *_field("do", advice(wrong), width)])
    if len(found) > WRONG_SHOWN:
        yield f"and {len(found) - WRONG_SHOWN} more"


def _aside(document: Document, rest: Sequence[Wrong], width: int) -> Iterator[str]:
    """What is not proven besides, and reasons of the verdict that belong to no result, such as a test without any."""
    for wrong in rest[:WRONG_SHOWN]:
        yield from _field(OUTCOMES[wrong.first.outcome], f"{wrong.where}: {wrong.first.reason}", width)
    reasons = tuple(wrong.first.reason or wrong.first.outcome.value for wrong in bad(document))
    for reason in document.reasons:
        if not reason.endswith(reasons):
            yield from _field("because", reason, width)


def _field(name: str, text: str, width: int) -> list[str]:
    indent = " " * 10
    lines = textwrap.wrap(clean(text), max(40, width) - len(indent), break_long_words=False, break_on_hyphens=False)
    return [f"  {name:<8}{lines[0]}", *(indent + line for line in lines[1:])] if lines else []


def _grid(document: Document, *, colour: bool) -> Iterator[str]:
    """Tests down, devices across."""
    found = rows(document.results)
    if not found:
        return
    nodes_too = any(THE_NODE in row.cells for row in found)
    names = [*device_names(result.device for result in document.results), *([THE_NODE] if nodes_too else [])]
    first = max(len("test"), *(len(clean(row.test)) for row in found))
    widths = [max(len(clean(name)), 7) for name in names]
    head = "  ".join(clean(name).ljust(size) for name, size in zip(names, widths, strict=True))
    yield f"{'test'.ljust(first)}  {head}  {'took':>10}"
    for row in found:
        cells = [_cell(row.cells.get(name), size, colour=colour) for name, size in zip(names, widths, strict=True)]
        yield f"{clean(row.test).ljust(first)}  {'  '.join(cells)}  {length(row.seconds):>10}"


def _cell(result: Result | None, size: int, *, colour: bool) -> str:
    if result is None:
        return " " * size
    ink = _INK.get(result.outcome, "" if result.outcome is Outcome.NOT_APPLICABLE else _UNSURE)
    return _painted(OUTCOMES[result.outcome].ljust(size), ink, colour=colour)


def _matrix(found: Pairs) -> Iterator[str]:
    """Who sends at the left, who receives above; `!` at what misses a bound."""
    yield f"{clean(found.test)} {clean(found.setting)} in {clean(found.unit)}, from the device at the left to the one above"
    lines = [("", *map(clean, found.names))]
    for one in found.names:
        cells = [(found.value(one, other), found.missed(one, other)) for other in found.names]
        lines.append((clean(one), *("" if v is None else number(v) + ("!" if wrong else "") for v, wrong in cells)))
    yield from columns(lines, right=range(1, len(found.names) + 1))


def _figures(found: Sequence[Group], *, colour: bool) -> Iterator[str]:
    """One line for each figure in its setting: its range over the devices, and the bound it is nearest to."""
    if not found:
        return
    lines = [("figure", "lowest", "median", "highest", "unit", "bound", "margin"), *map(_line, found)]
    head, *texts = columns(lines, right={2})
    yield head
    for text, group in zip(texts, found, strict=True):
        yield _painted(text, _ink_of(group), colour=colour)


def _line(group: Group) -> tuple[str, ...]:
    worst = group.worst
    bound = tightest(worst.figure)
    named = f"{clean(group.test)} {clean(group.name)}{f' ({clean(group.setting)})' if group.setting else ''}"
    said = "" if bound is None else f"{limits(bound, '').rstrip()} {SOURCES[bound.source]}"
    margin = "" if worst.figure.margin is None else share(worst.figure.margin)
    several = len(group.readings) > 1
    return (
        named,
        _with_device(group.lowest),
        number(group.median) if several else "",
        _with_device(group.highest) if several else "",
        clean(group.unit),
        said,
        f"{margin} {clean(worst.device)}" if worst.missed and several else margin,
    )


def _with_device(reading: Reading) -> str:
    return number(reading.figure.value) + (f" {clean(reading.device)}" if reading.device != THE_NODE else "")


def _ink_of(group: Group) -> str:
    if not group.remarkable:
        return ""
    return "red" if group.fails else _UNSURE


def _remarks(document: Document, width: int) -> Iterator[str]:
    """Each once, with everywhere it was made."""
    made: dict[tuple[str, str], list[str]] = {}
    for result in document.results:
        for remark in result.remarks:
            made.setdefault((result.test, remark), []).append(result.device)
    for (test, remark), devices in made.items():
        where = _listed([device for device in devices if device])
        yield from _field("remark", f"{test}{where}: {remark}", width)


def _listed(devices: Sequence[str]) -> str:
    return f" on {', '.join(devices)}" if devices else ""


def _painted(text: str, ink: str, *, colour: bool, bold: bool = False) -> str:
    return click.style(text, fg=ink or None, bold=bold or None) if colour and (ink or bold) else text
