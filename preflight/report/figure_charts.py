"""Charts as scalable markup: a track per device, a matrix of pairs, a timeline of tests.

No script and no style of their own. Colours are classes of the page's stylesheet; each picture says in words what it shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec
from markupsafe import Markup

from preflight.report.pair_matrices import PairMatrix
from preflight.report.result_tables import DeviceReading, FigureGroup, OutcomeRow
from preflight.report.value_format import SOURCES, escape_text, format_limits, format_number

LONG = 1000.0  # units of a track, whatever its width on the paper
HIGH = 20.0
SPAN_MIN = 0.2  # of the largest value, so that small differences look small
ROOM = 0.06  # of the span, at both ends
SHADES = 8  # of the stylesheet
SHADE_SPAN_MIN = 0.2  # of the best pair: the same for the matrix
_TRACK = Markup('<svg class="track" viewBox="0 0 1000 20" preserveAspectRatio="none" role="img">{}</svg>')
_BAR = Markup('<svg class="track thin" viewBox="0 0 1000 20" preserveAspectRatio="none" aria-hidden="true">{}</svg>')


class Axis(msgspec.Struct, frozen=True):
    """From which value to which a track goes."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Where a value stands on the track; at an end if it is beyond."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(min(max(share, 0.0), 1.0) * LONG, 1)


def build_axis(group: FigureGroup) -> Axis:
    """Choose an axis with every value and bound of a group, on which small differences look small."""
    values = [reading.figure.value for reading in group.readings]
    bounds = [at for each in group.readings for e in each.figure.expected for at in (e.at_least, e.at_most)]
    seen = [value for value in (*values, *bounds) if value is not None and math.isfinite(value)]
    low, high = min(seen, default=0.0), max(seen, default=1.0)
    span = max(high - low, SPAN_MIN * max(abs(low), abs(high)), 1e-12)
    middle = (low + high) / 2
    first, last = middle - span * (0.5 + ROOM), middle + span * (0.5 + ROOM)
    return Axis(max(first, 0.0) if low >= 0 else first, last)


def draw_track(reading: DeviceReading, on: Axis, unit: str) -> Markup:
    """One device's value on the axis of its group: out-of-bounds areas are shaded, each bound is a thin line."""
    parts = [
        Markup("<title>{}</title>").format(describe_track(reading, unit)),
        *_draw_failing_ranges(reading, on),
        *_draw_bounds(reading, on),
    ]
    kind = "bad" if reading.fails else "odd" if reading.missed else "good"
    parts.append(_draw_upright("value " + kind, on.at(reading.figure.value), 2.0))
    return _TRACK.format(Markup("").join(parts))


def describe_track(reading: DeviceReading, unit: str) -> str:
    """What a track shows."""
    said = [f"{format_limits(each, unit)} ({SOURCES[each.source]})" for each in reading.figure.expected]
    expected = f"; expected {', '.join(said)}" if said else ""
    return escape_text(f"{reading.device}: {format_number(reading.figure.value)} {unit}{expected}")


def _draw_failing_ranges(reading: DeviceReading, on: Axis) -> Iterator[Markup]:
    """Where a value would fail: under the highest of the lower bounds, over the lowest of the upper ones."""
    under = [e.at_least for e in reading.figure.expected if e.fails and e.at_least is not None]
    over = [e.at_most for e in reading.figure.expected if e.fails and e.at_most is not None]
    if under:
        yield _draw_box("out", 0.0, on.at(max(under)))
    if over:
        begins = on.at(min(over))
        yield _draw_box("out", begins, LONG - begins)


def _draw_bounds(reading: DeviceReading, on: Axis) -> Iterator[Markup]:
    for each in reading.figure.expected:
        for at in (each.at_least, each.at_most):
            if at is not None:
                yield _draw_upright("bound" if each.fails else "bound soft", on.at(at), 0.0)


def draw_course(rows: Sequence[OutcomeRow]) -> list[tuple[OutcomeRow, Markup]]:
    """One bar for each test, each beginning where the one before ended."""
    whole = sum(row.seconds for row in rows) or 1.0
    begun, bars = 0.0, []
    for row in rows:
        at, wide = begun / whole * LONG, row.seconds / whole * LONG
        begun += row.seconds
        bar = _draw_box(f"bar {row.worst.value}", round(at, 1), round(max(wide, 3.0), 1))
        bars.append((row, _BAR.format(bar)))
    return bars


def choose_heat_class(pairs: PairMatrix, value: float | None) -> str:
    """The class of a cell: h0 at the slowest end, h8 at the best pair's rate; "none" where nothing was measured."""
    if value is None or not math.isfinite(value):
        return "none"
    best, least = pairs.best, pairs.least
    span = max(best - least, SHADE_SPAN_MIN * best) or 1.0
    return f"h{round(min(max(1.0 - (best - value) / span, 0.0), 1.0) * SHADES)}"


def _draw_box(kind: str, at: float, wide: float) -> Markup:
    return Markup('<rect class="{}" x="{}" y="0" width="{}" height="20"/>').format(kind, at, wide)


def _draw_upright(kind: str, at: float, gap: float) -> Markup:
    return Markup('<path class="{}" d="M{} {}V{}"/>').format(kind, at, gap, HIGH - gap)
