"""Renders slowness against peers as a heat map of stages × ranks, as SVG or as an HTML page without external files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from healthctl.exit_codes import Exit, Failure
from healthctl.rendering.blocks import escape_control_chars
from remediator.detection.stragglers.straggler_judgement import rank_slowness

if TYPE_CHECKING:
    from healthctl.analysis.answers import JobVerdict
    from remediator.detection.stragglers.step_trace import Ints, StepTrace

WIDTH, LEFT, TOP, ROW, ROOM = 1000, 180, 62, 18, 40
CELL_MIN, CELL_MAX = 4.0, 24.0
DIGIT = 5.0  # wide
FULL = 0.25  # slowdown at which the colour saturates
NOT_KNOWN = "#e4e4e4"
COLD, CALM, HOT = (33, 102, 172), (247, 247, 247), (178, 24, 43)


def write_straggler_heat_map(path: Path, jobs: Sequence[JobVerdict], traces: Sequence[StepTrace]) -> None:
    """Write all jobs, one below the other, to `path` (.svg or .html); raises a Failure if it cannot be written."""
    picture = render_straggler_svg(jobs, traces)
    if path.suffix.lower() == ".html":
        head = "<!DOCTYPE html><html lang='en'><meta charset='utf-8'><title>Stragglers</title>"
        picture = f"{head}<body style='margin:1em'>{picture}</body></html>\n"
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}", Exit.UNKNOWN) from None


def render_straggler_svg(jobs: Sequence[JobVerdict], traces: Sequence[StepTrace]) -> str:
    """Render one row per stage and role (wrapped if long) and one square per rank; culprits are framed."""
    parts: list[str] = []
    top = 0.0
    for job, trace in zip(jobs, traces, strict=True):
        drawn, height = _render_job(job, trace)
        parts += [f'<g transform="translate(0 {top:.0f})">', *drawn, "</g>"]
        top += height
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {max(top, ROW):.0f}" role="img" '
        'font-family="system-ui, DejaVu Sans, sans-serif" font-size="12">'
    )
    return "\n".join([head, "<title>Slowdown relative to peers</title>", *parts, "</svg>"])


def _render_job(job: JobVerdict, trace: StepTrace) -> tuple[list[str], float]:
    slow, stage = rank_slowness(trace, job.first_step)
    culprits = {each.rank for each in job.culprits}
    widest = max((int((stage == number).sum()) for number in np.unique(stage)), default=1)
    cell = float(np.clip((WIDTH - LEFT - 10) / widest, CELL_MIN, CELL_MAX))
    columns = int((WIDTH - LEFT - 10) // cell)
    named = [f"rank {each.rank}" for each in job.culprits[:8]]
    since = [] if job.first_step is None else [f"since step {job.first_step}"]
    words = f"{job.job}: {', '.join([job.verdict, *named, *since])}"
    parts = [f'<text x="10" y="20" font-size="14">{escape(escape_control_chars(words))}</text>', *_render_legend()]
    y = float(TOP)
    for number in np.unique(stage):
        own = np.flatnonzero(stage == number)
        for start in range(0, own.size, columns):
            row = own[start : start + columns]
            parts.append(_render_row_label(y, trace, row, _stage_label(trace, int(row[0])) if start == 0 else ""))
            for place, column in enumerate(row.tolist()):
                x = LEFT + place * cell
                parts.append(_render_rank_square(x, y, cell, trace, column, float(slow[column]), culprits))
            y += ROW
    return parts, y + ROOM - ROW


def _render_row_label(y: float, trace: StepTrace, row: Ints, stage: str) -> str:
    """The label left of a row: its stage, and its first and last rank."""
    first, last = int(trace.ranks[row[0]]), int(trace.ranks[row[-1]])
    ranks = str(first) if first == last else f"{first}–{last}"
    words = f'<text x="10" y="{y + ROW - 5:.0f}">{stage}</text>' if stage else ""
    return f'{words}<text x="{LEFT - 8}" y="{y + ROW - 5:.0f}" text-anchor="end" fill="#666">{ranks}</text>'


def _render_rank_square(
    x: float, y: float, cell: float, trace: StepTrace, column: int, slow: float, culprits: set[int]
) -> str:
    """One rank, labelled with its number if it fits."""
    rank = int(trace.ranks[column])
    frame = f' stroke="#000" stroke-width="{min(2.0, cell / 6):.2g}"' if rank in culprits else ""
    square = (
        f'<rect x="{x:.1f}" y="{y:.0f}" width="{cell - 0.5:.1f}" height="{ROW - 2}" fill="{slowness_colour(slow)}"{frame}>'
        f"<title>{escape(escape_control_chars(_rank_tooltip(trace, column, slow)))}</title></rect>"
    )
    if cell < DIGIT * (len(str(rank)) + 1):
        return square
    ink = "#fff" if abs(slow) > FULL / 2 else "#666"
    middle = f'x="{x + cell / 2:.1f}" y="{y + ROW - 6:.0f}" text-anchor="middle" font-size="9"'
    return f'{square}<text {middle} fill="{ink}" pointer-events="none">{rank}</text>'


def _stage_label(trace: StepTrace, column: int) -> str:
    said = []
    for name in ("stage", "role"):
        code = int(trace.codes[name][column])
        if code >= 0:
            said.append(f"{name} {trace.names[name][code]}")
    if not said and trace.places["pp_rank"][column] >= 0:
        said.append(f"stage {trace.places['pp_rank'][column]}")
    return escape(escape_control_chars(", ".join(said)[:18]) or "ranks")


def _rank_tooltip(trace: StepTrace, column: int, slow: float) -> str:
    node = trace.node_of(column)
    said = "no peers" if np.isnan(slow) else f"{slow:+.1%} relative to its peers"
    return f"rank {trace.ranks[column]}{f' on {node}' if node else ''}: {said}"


def _render_legend() -> Iterator[str]:
    for place, (value, words) in enumerate(
        [
            (-FULL, f"−{FULL:.0%}"),
            (0.0, "same as peers"),
            (0.1, "+10%"),
            (FULL, f"+{FULL:.0%} and more"),
            (np.nan, "not known"),
        ]
    ):
        x = LEFT + place * 140
        yield f'<rect x="{x}" y="32" width="14" height="14" fill="{slowness_colour(value)}" stroke="#999"/>'
        yield f'<text x="{x + 20}" y="44">{words}</text>'


def slowness_colour(slow: float) -> str:
    """Blue for fast, red for slow, grey for unknown.

    >>> slowness_colour(0.0), slowness_colour(1.0), slowness_colour(float("nan"))
    ('#f7f7f7', '#b2182b', '#e4e4e4')
    """
    if np.isnan(slow):
        return NOT_KNOWN
    share = min(abs(slow) / FULL, 1.0)
    mixed = (round(a + (b - a) * share) for a, b in zip(CALM, HOT if slow > 0 else COLD, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)
