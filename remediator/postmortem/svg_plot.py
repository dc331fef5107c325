"""Charts as inline SVG, without scripts or own styles, and with a text alternative. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from markupsafe import Markup

from remediator.postmortem.postmortem_document import ChartLine, EvidenceChart
from remediator.postmortem.text_escaping import escape_control_characters

WIDTH, HEIGHT = 520, 210
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 14, 28
TICKS = 4
COLOURS = 8  # in the stylesheet
GAP_MEDIANS = 6.0  # a gap this many times wider than usual is drawn as one
LABELS_SHOWN = 8
SPREAD_MIN = 0.1  # of the values: smaller variation must look as steady as it is
SPARKS = "▁▂▃▄▅▆▇█"
SPARK_COLUMNS = 40
NOTHING, MARK = "·", "│"


class _PlotFrame:
    """Maps times and values to coordinates."""

    def __init__(self, chart: EvidenceChart) -> None:
        values = [v for line in chart.lines for _, v in line.points]
        low, high = min(values, default=0.0), max(values, default=1.0)
        room = max(0.0, SPREAD_MIN * max(abs(low), abs(high)) - (high - low)) / 2
        self.began, self.ended = chart.began, chart.ended
        self.ticks = nice_ticks(low - room, high + room)
        self.low, self.high = self.ticks[0], self.ticks[-1]

    def x(self, time: float) -> float:
        """Return the horizontal coordinate, from the left."""
        return LEFT + (time - self.began) / ((self.ended - self.began) or 1.0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the vertical coordinate, from the top."""
        return TOP + (self.high - value) / ((self.high - self.low) or 1.0) * (HEIGHT - TOP - BOTTOM)


def render_chart_svg(chart: EvidenceChart, number: int) -> Markup:
    """Render the chart; `number` makes its ids unique on the page."""
    frame = _PlotFrame(chart)
    name = f"chart{int(number)}"
    parts = [
        Markup(
            '<svg class="chart" role="img" viewBox="0 0 {} {}" aria-labelledby="{}t {}d" xmlns="http://www.w3.org/2000/svg">'
        ).format(WIDTH, HEIGHT, name, name),
        Markup('<title id="{}t">{}</title>').format(
            name, escape_control_characters(f"{chart.title} ({chart.unit}) on {chart.node}")
        ),
        Markup('<desc id="{}d">{}</desc>').format(name, escape_control_characters(describe_chart(chart))),
        *_render_grid(frame),
        *_render_time_axis(frame, chart.mark_at),
        *_render_curves(frame, chart.lines),
        *_render_mark(frame, chart),
        Markup("</svg>"),
    ]
    return Markup("\n").join(parts)


def render_chart_legend(chart: EvidenceChart) -> Markup:
    """Render the legend in HTML."""
    suspects, others = [c for c in chart.lines if c.suspect], [c for c in chart.lines if not c.suspect]
    shown = [(line, "suspect") for line in suspects]
    if suspects:
        words = (
            [Markup('<span class="key other">{} more</span>').format(len(others) + chart.left_out)] if others else []
        )
    else:
        shown = [(line, f"c{number % COLOURS}") for number, line in enumerate(others)]
        words = []
    keys = [
        Markup('<span class="key {}">{}</span>').format(style, escape_control_characters(line.label))
        for line, style in shown[:LABELS_SHOWN]
    ]
    hidden = len(shown) - LABELS_SHOWN + (0 if suspects else chart.left_out)
    if hidden > 0:
        words.append(Markup('<span class="key other">{} more</span>').format(hidden))
    return Markup(" ").join([*keys, *words])


def describe_chart(chart: EvidenceChart) -> str:
    """Describe the chart as text: the range of each curve before and after the moment."""
    said = []
    for line in chart.lines[:LABELS_SHOWN]:
        before = [value for time, value in line.points if time < chart.mark_at]
        after = [value for time, value in line.points if time >= chart.mark_at]
        said.append(f"{line.label}: before {_format_range(before)}, after {_format_range(after)}")
    when = "the request" if chart.mark == "asked" else "the fault was first seen"
    return f"Before and after {when}. {'; '.join(said)}"


def render_sparkline(line: ChartLine, chart: EvidenceChart) -> str:
    """Render the curve as one row of characters over the chart's whole time, with the moment marked."""
    frame = _PlotFrame(chart)
    width = (frame.ended - frame.began) or 1.0
    columns: list[list[float]] = [[] for _ in range(SPARK_COLUMNS)]
    for time, value in line.points:
        columns[min(SPARK_COLUMNS - 1, int((time - frame.began) / width * SPARK_COLUMNS))].append(value)
    low, high = frame.low, frame.high
    letters = [
        SPARKS[round((sum(c) / len(c) - low) / ((high - low) or 1.0) * (len(SPARKS) - 1))] if c else NOTHING
        for c in columns
    ]
    letters.insert(min(SPARK_COLUMNS, int((chart.mark_at - frame.began) / width * SPARK_COLUMNS)), MARK)
    return "".join(letters)


def nice_ticks(low: float, high: float) -> list[float]:
    """Return about four round numbers, from at or below `low` to at or above `high`.

    >>> nice_ticks(31.0, 87.5)
    [20.0, 40.0, 60.0, 80.0, 100.0]
    """
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9, size * 1e-9):  # practically one value
        low, high = (low - max(1.0, size / 100), high + max(1.0, size / 100)) if size > 1e-9 else (0.0, 1.0)
    rough = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 10) for number in range(first, last + 1)]


def format_short_number(value: float) -> str:
    """Format a number for an axis or a reading.

    >>> [format_short_number(v) for v in (0.25, 1980.0, 20_000.0, 2_500_000.0, 3.2e12)]
    ['0.25', '1980', '20k', '2.5M', '3.2T']
    """
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= factor:
            unit = 1e3 if letter == "k" else factor
            return f"{value / unit:.4g}{letter}"
    return f"{value:.4g}"


def draw_curve(points: Iterable[tuple[float, float, float]], gap_s: float) -> str:
    """Return the SVG path through points (time, x, y), interrupted where times are more than `gap_s` apart.

    >>> draw_curve([(0, 0, 5), (1, 1, 6), (9, 9, 7)], 2)
    'M0.0 5.0L1.0 6.0M9.0 7.0'
    >>> draw_curve([(0, 0, 5)], math.inf)  # a single point is visible, too
    'M0.0 5.0h0.1'
    """
    parts: list[str] = []
    before = 0.0
    for time, x, y in points:
        parts.append(f"{'L' if parts and time - before <= gap_s else 'M'}{x:.1f} {y:.1f}")
        before = time
    return "".join(parts) + ("h0.1" if len(parts) == 1 else "")


def _render_grid(frame: _PlotFrame) -> Iterator[Markup]:
    for tick in frame.ticks:
        y = f"{frame.y(tick):.1f}"
        yield Markup('<path class="grid" d="M{} {}H{}"/>').format(LEFT, y, WIDTH - RIGHT)
        yield Markup('<text class="tick" x="{}" y="{}" text-anchor="end" dy="3.5">{}</text>').format(
            LEFT - 6, y, format_short_number(tick)
        )


def _render_time_axis(frame: _PlotFrame, mark_at: float) -> Iterator[Markup]:
    """Render minutes before and after the moment, which readers compare with."""
    span_s = frame.ended - frame.began
    step_s = next((s for s in (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800) if span_s / s <= TICKS + 3), 3600)
    for number in range(math.ceil((frame.began - mark_at) / step_s), math.floor((frame.ended - mark_at) / step_s) + 1):
        if number == 0:
            continue
        seconds = number * step_s
        words = f"{seconds:+d} s" if step_s < 60 else f"{seconds / 60:+g} min"
        x = f"{frame.x(mark_at + seconds):.1f}"
        yield Markup('<path class="grid" d="M{} {}v4"/>').format(x, HEIGHT - BOTTOM)
        yield Markup('<text class="tick" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            x, HEIGHT - BOTTOM + 16, words.replace("-", "−")
        )


def _render_curves(frame: _PlotFrame, lines: Sequence[ChartLine]) -> Iterator[Markup]:
    """Render the curves, the suspects last and on top."""
    some_suspect = any(line.suspect for line in lines)
    for number, line in sorted(enumerate(lines), key=lambda item: item[1].suspect):
        style = "suspect" if line.suspect else "other" if some_suspect else f"c{number % COLOURS}"
        path = _curve_path(frame, line.points)
        if path:
            yield Markup('<path class="curve {}" d="{}"><title>{}</title></path>').format(
                style, path, escape_control_characters(line.label)
            )


def _curve_path(frame: _PlotFrame, points: Sequence[tuple[float, float]]) -> str:
    gaps = sorted(b[0] - a[0] for a, b in itertools.pairwise(points))
    widest = gaps[len(gaps) // 2] * GAP_MEDIANS if gaps else math.inf
    return draw_curve(((time, frame.x(time), frame.y(value)) for time, value in points), widest)


def _render_mark(frame: _PlotFrame, chart: EvidenceChart) -> Iterator[Markup]:
    x = frame.x(chart.mark_at)
    yield Markup('<path class="mark" d="M{:.1f} {}V{}"/>').format(x, TOP - 4, HEIGHT - BOTTOM)
    anchor = "end" if x > WIDTH / 2 else "start"
    yield Markup('<text class="mark-word" x="{:.1f}" y="{}" text-anchor="{}">{}</text>').format(
        x + (-4 if anchor == "end" else 4), TOP + 4, anchor, chart.mark
    )


def _format_range(values: Sequence[float]) -> str:
    if not values:
        return "not known"
    low, high = min(values), max(values)
    return format_short_number(low) if low == high else f"{format_short_number(low)} to {format_short_number(high)}"
