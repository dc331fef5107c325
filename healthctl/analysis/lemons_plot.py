"""The most suspect nodes on a common time axis, as SVG or as a page that holds it: no script, nothing loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from healthctl.exits import Exit, Failure
from healthctl.output import clean, moment
from remediator.detect.lemons.history import Kind, out_of_service

if TYPE_CHECKING:
    from healthctl.analysis.answers import SuspectNode
    from healthctl.analysis.fleet_record import FleetRecord

WIDTH, ROW, LEFT, RIGHT, TOP = 1000, 22, 190, 110, 58
# Shape beside colour, for those who cannot tell colours apart.
SIGNS = {
    Kind.FAILURE: ("failure", "#c0392b", "M-5 -5L5 5M5 -5L-5 5"),
    Kind.XID: ("xid", "#8e44ad", "M0 -5L5 4L-5 4Z"),
    Kind.REMOVED: ("removed", "#2c3e50", "M-4 -4H4V4H-4Z"),
    Kind.TEST_FAILED: ("test failed", "#d35400", "M0 -6L5 0L0 6L-5 0Z"),
    Kind.TICKET: ("ticket", "#7f8c8d", "M-4 0H4"),
    Kind.EXCLUDED: ("excluded by a job", "#16a085", "M0 -5V5"),
    Kind.REPAIRED: ("repaired", "#27ae60", "M0 -6V6M-5 0H5"),
}
SIGNS_MAX = 400  # of one node: more cannot be told apart
TICKS = 6


def draw(path: Path, nodes: Sequence[SuspectNode], record: FleetRecord, as_of: float) -> None:
    """Write the picture to `path` (.svg or .html); a Failure says why it cannot be written."""
    picture = svg(nodes, record, as_of)
    if path.suffix.lower() == ".html":
        head = "<!DOCTYPE html><html lang='en'><meta charset='utf-8'><title>Lemons</title>"
        picture = f"{head}<body style='margin:1em'>{picture}</body></html>\n"
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}", Exit.UNKNOWN) from None


def svg(nodes: Sequence[SuspectNode], record: FleetRecord, as_of: float) -> str:
    """The picture. Rows from the most suspect downwards; grey bars: out of service."""
    history = record.history.until(as_of)
    began = float(history.time.min()) if history.time.size else as_of - 1
    span = max(as_of - began, 1.0)
    scale = (WIDTH - LEFT - RIGHT) / span
    height = TOP + ROW * max(len(nodes), 1) + 34
    title = f"Most suspect nodes as of {moment(as_of)}"
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            'font-family="system-ui, DejaVu Sans, sans-serif" font-size="12">'
        ),
        f"<title>{title}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="10" y="18" font-size="14">{title}</text>',
        *_legend(),
        *_axis(began, span, height),
    ]
    ids = {name: number for number, name in enumerate(record.names)}
    out_node, out_from, out_to = out_of_service(history, as_of)
    for place, node in enumerate(nodes):
        y = TOP + ROW * place + ROW / 2
        own = ids[node.node]
        parts.append(_text(LEFT - 8, y, node.node, "end"))
        parts.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        for at in np.flatnonzero(out_node == own)[:SIGNS_MAX]:
            x, w = LEFT + (out_from[at] - began) * scale, max((out_to[at] - out_from[at]) * scale, 0.5)
            parts.append(f'<rect x="{x:.1f}" y="{y - 5}" width="{w:.1f}" height="10" fill="#ccc"/>')
        for at in np.flatnonzero(history.node == own)[-SIGNS_MAX:]:
            if (kind := Kind(int(history.kind[at]))) in SIGNS:
                _, colour, form = SIGNS[kind]
                x = LEFT + (history.time[at] - began) * scale
                parts.append(f'<path transform="translate({x:.1f} {y})" d="{form}" fill="none" stroke="{colour}"/>')
        parts.append(_text(WIDTH - RIGHT + 8, y, f"{node.probability:.2f} {node.action}", "start"))
    return "\n".join([*parts, "</svg>"])


def _text(x: float, y: float, words: str, anchor: str) -> str:
    shown = clean(words)
    shown = shown if len(shown) <= 28 else shown[:25] + "..."
    return f'<text x="{x}" y="{y + 4}" text-anchor="{anchor}">{escape(shown)}</text>'


def _legend() -> Iterator[str]:
    x = 10.0
    for name, colour, form in SIGNS.values():
        yield f'<path transform="translate({x + 6} 38)" d="{form}" fill="none" stroke="{colour}"/>'
        yield f'<text x="{x + 16}" y="42">{name}</text>'
        x += 34 + 7 * len(name)


def _axis(began: float, span: float, height: int) -> Iterator[str]:
    for tick in range(TICKS + 1):
        x = LEFT + (WIDTH - LEFT - RIGHT) * tick / TICKS
        words = moment(began + span * tick / TICKS)
        yield f'<path d="M{x:.1f} {TOP - 4}V{height - 30}" stroke="#eee"/>'
        yield f'<text x="{x:.1f}" y="{height - 12}" text-anchor="middle" font-size="10">{words[:16]}</text>'
