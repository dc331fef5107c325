"""A document for a terminal: the verdict, then the failures with location and repair, then all measurements."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import click

from preflight.report.pair_matrices import PairMatrix, build_pair_matrices, exclude_pair_figures
from preflight.report.repair_advice import advise_repair, split_failures
from preflight.report.result_tables import (
    DeviceReading,
    FigureGroup,
    ReportedFailure,
    build_outcome_rows,
    find_tightest_bound,
    group_devices,
    group_figures,
    list_failures,
    order_device_names,
)
from preflight.report.text_columns import align_columns
from preflight.report.timestamps import format_moment
from preflight.report.value_format import (
    OUTCOMES,
    SOURCES,
    THE_NODE,
    escape_text,
    format_limits,
    format_location,
    format_margin,
    format_number,
)
from preflight.results import Document, Outcome, Result, Verdict
from vocabulary.text.duration_format import format_duration
from vocabulary.text.plurals import format_count

WIDTH = 110
WRONG_SHOWN = 30
LOCATIONS_SHOWN = 4
_INK = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.HANG: "red"}
_VERDICT_INK = {Verdict.PASS: "green", Verdict.FAIL: "red"}
_UNSURE = "yellow"


def render_text(document: Document, *, colour: bool = False, width: int = WIDTH) -> str:
    """The document as text without a final line break. Nothing in it can steer a terminal but our own colours."""
    grave, rest = split_failures(document)
    matrices = build_pair_matrices(document.results)
    parts = [
        "\n".join((_render_head(document, colour=colour), *_describe_devices(document, width))),
        *_describe_failures(grave, colour=colour, width=width),
        "\n".join(_describe_unproven(document, rest, width)),
        "\n".join(_render_grid(document, colour=colour)),
        *("\n".join(_render_matrix(each)) for each in matrices),
        "\n".join(_render_figures(exclude_pair_figures(group_figures(document.results), matrices), colour=colour)),
        "\n".join(_render_remarks(document, width)),
    ]
    return "\n\n".join(part for part in parts if part)


def format_heading(document: Document) -> str:
    """The verdict and how it came about, in one line."""
    partly = ", partial" if not document.complete else ""
    rounds = f", {document.rounds} rounds" if document.rounds > 1 else ""
    return (
        f"{escape_text(document.node)}: {document.verdict.value.upper()} at level {escape_text(document.level)}{partly}"
        f" in {format_duration(document.seconds)}{rounds}, {format_moment(document.started_at)}"
    )


def _render_head(document: Document, *, colour: bool) -> str:
    line = _paint_text(format_heading(document), _VERDICT_INK.get(document.verdict, _UNSURE), colour=colour, bold=True)
    if not document.injected:
        return line
    return f"{line}\ninjected: {escape_text(', '.join(document.injected))} (a fault injected on request)"


def _describe_devices(document: Document, width: int) -> Iterator[str]:
    """Which devices, and the versions that matter."""
    said = [
        f"{kind}: {', '.join(device.name for device in devices)}" for kind, devices in group_devices(document.devices)
    ]
    if said:
        yield from _format_field("tested", "; ".join(said), width)
    if document.software:
        yield from _format_field(
            "with", ", ".join(f"{name} {version}" for name, version in document.software.items()), width
        )


def _describe_failures(found: Sequence[ReportedFailure], *, colour: bool, width: int) -> Iterator[str]:
    for wrong in found[:WRONG_SHOWN]:
        result = wrong.first
        word = _paint_text(OUTCOMES[result.outcome], _INK.get(result.outcome, _UNSURE), colour=colour, bold=True)
        lines = [
            f"{word} {escape_text(wrong.where)}",
            *_format_field("why", result.reason or "it gave no reason", width),
        ]
        for location in result.locations[:LOCATIONS_SHOWN]:
            lines += _format_field("where", format_location(location), width)
        if (more := len(result.locations) - LOCATIONS_SHOWN) > 0:
            lines += _format_field("", f"and {format_count(more, 'more place')}", width)
        yield "\n".join([*lines, *_format_field("do", advise_repair(wrong), width)])
    if len(found) > WRONG_SHOWN:
        yield f"and {len(found) - WRONG_SHOWN} more"


def _describe_unproven(document: Document, rest: Sequence[ReportedFailure], width: int) -> Iterator[str]:
    """What is not proven besides, and reasons of the verdict that belong to no result, such as a test without any."""
    for wrong in rest[:WRONG_SHOWN]:
        yield from _format_field(OUTCOMES[wrong.first.outcome], f"{wrong.where}: {wrong.first.reason}", width)
    reasons = tuple(wrong.first.reason or wrong.first.outcome.value for wrong in list_failures(document))
    for reason in document.reasons:
        if not reason.endswith(reasons):
            yield from _format_field("because", reason, width)


def _format_field(name: str, text: str, width: int) -> list[str]:
    indent = " " * 10
    lines = textwrap.wrap(
        escape_text(text), max(40, width) - len(indent), break_long_words=False, break_on_hyphens=False
    )
    return [f"  {name:<8}{lines[0]}", *(indent + line for line in lines[1:])] if lines else []


def _render_grid(document: Document, *, colour: bool) -> Iterator[str]:
    """Tests down, devices across."""
    found = build_outcome_rows(document.results)
    if not found:
        return
    nodes_too = any(THE_NODE in row.cells for row in found)
    names = [*order_device_names(result.device for result in document.results), *([THE_NODE] if nodes_too else [])]
    first = max(len("test"), *(len(escape_text(row.test)) for row in found))
    widths = [max(len(escape_text(name)), 7) for name in names]
    head = "  ".join(escape_text(name).ljust(size) for name, size in zip(names, widths, strict=True))
    yield f"{'test'.ljust(first)}  {head}  {'took':>10}"
    for row in found:
        cells = [
            _format_cell(row.cells.get(name), size, colour=colour) for name, size in zip(names, widths, strict=True)
        ]
        yield f"{escape_text(row.test).ljust(first)}  {'  '.join(cells)}  {format_duration(row.seconds):>10}"


def _format_cell(result: Result | None, size: int, *, colour: bool) -> str:
    if result is None:
        return " " * size
    ink = _INK.get(result.outcome, "" if result.outcome is Outcome.NOT_APPLICABLE else _UNSURE)
    return _paint_text(OUTCOMES[result.outcome].ljust(size), ink, colour=colour)


def _render_matrix(found: PairMatrix) -> Iterator[str]:
    """Sender at the left, receiver above; `!` marks a missed bound."""
    yield f"{escape_text(found.test)} {escape_text(found.setting)} in {escape_text(found.unit)}, from the device at the left to the one above"
    lines = [("", *map(escape_text, found.names))]
    for one in found.names:
        cells = [(found.value(one, other), found.missed(one, other)) for other in found.names]
        lines.append(
            (escape_text(one), *("" if v is None else format_number(v) + ("!" if wrong else "") for v, wrong in cells))
        )
    yield from align_columns(lines, right=range(1, len(found.names) + 1))


def _render_figures(found: Sequence[FigureGroup], *, colour: bool) -> Iterator[str]:
    """One line for each figure in its setting: its range over the devices, and the bound it is nearest to."""
    if not found:
        return
    lines = [("figure", "lowest", "median", "highest", "unit", "bound", "margin"), *map(_build_figure_row, found)]
    head, *texts = align_columns(lines, right={2})
    yield head
    for text, group in zip(texts, found, strict=True):
        yield _paint_text(text, _ink_of(group), colour=colour)


def _build_figure_row(group: FigureGroup) -> tuple[str, ...]:
    worst = group.worst
    bound = find_tightest_bound(worst.figure)
    named = f"{escape_text(group.test)} {escape_text(group.name)}{f' ({escape_text(group.setting)})' if group.setting else ''}"
    said = "" if bound is None else f"{format_limits(bound, '').rstrip()} {SOURCES[bound.source]}"
    margin = "" if worst.figure.margin is None else format_margin(worst.figure.margin)
    several = len(group.readings) > 1
    return (
        named,
        _with_device(group.lowest),
        format_number(group.median) if several else "",
        _with_device(group.highest) if several else "",
        escape_text(group.unit),
        said,
        f"{margin} {escape_text(worst.device)}" if worst.missed and several else margin,
    )


def _with_device(reading: DeviceReading) -> str:
    return format_number(reading.figure.value) + (
        f" {escape_text(reading.device)}" if reading.device != THE_NODE else ""
    )


def _ink_of(group: FigureGroup) -> str:
    if not group.remarkable:
        return ""
    return "red" if group.fails else _UNSURE


def _render_remarks(document: Document, width: int) -> Iterator[str]:
    """Each remark once, with all its locations."""
    made: dict[tuple[str, str], list[str]] = {}
    for result in document.results:
        for remark in result.remarks:
            made.setdefault((result.test, remark), []).append(result.device)
    for (test, remark), devices in made.items():
        where = _format_device_list([device for device in devices if device])
        yield from _format_field("remark", f"{test}{where}: {remark}", width)


def _format_device_list(devices: Sequence[str]) -> str:
    return f" on {', '.join(devices)}" if devices else ""


def _paint_text(text: str, ink: str, *, colour: bool, bold: bool = False) -> str:
    return click.style(text, fg=ink or None, bold=bold or None) if colour and (ink or bold) else text
