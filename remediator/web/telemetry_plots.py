"""Plots of a node's last hour. Pure: series in, numbers and SVG paths out; the template renders the markup."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from remediator.model.views_telemetry import SeriesView
from remediator.postmortem.svg_plot import draw_curve, format_short_number

WIDTH, HEIGHT = 340.0, 84.0
TICKS = 2
HOST = "host"
FLAG = "0 or 1"
VALUE_MAX = 1e15
COLOURS = 8  # as many as the style sheet has; a ninth GPU starts over
BREAK_S = 120.0  # longer gaps between samples interrupt the curve


class PlotCurve(msgspec.Struct, frozen=True):
    """One GPU's curve: its path, and its last, lowest and highest value."""

    label: str
    colour: int
    path: str
    last: str
    low: str
    high: str


class TelemetryPlot(msgspec.Struct, frozen=True):
    """All GPUs' curves of one reading, on one time axis and scale."""

    name: str
    unit: str
    curves: tuple[PlotCurve, ...]
    low: str
    high: str
    begin: float  # UTC s
    end: float


def build_telemetry_plots(
    series: Sequence[SeriesView], now: float, span_s: float = 3600.0
) -> tuple[list[TelemetryPlot], list[str]]:
    """One plot per reading, in the node's order; and the names of readings that were constantly 0."""
    named: dict[tuple[str, str], list[SeriesView]] = {}
    for one in series:
        if one.times:
            named.setdefault((one.name, one.unit), []).append(one)
    zero = [key for key, together in named.items() if not any(any(one.values) for one in together)]
    drawn = [_build_plot(*key, together, now, span_s) for key, together in named.items() if key not in zero]
    return drawn, [name for name, _ in zero]


def _build_plot(name: str, unit: str, together: list[SeriesView], now: float, span_s: float) -> TelemetryPlot:
    values = [value for one in together for value in one.values if _is_drawable(value)]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    bottom, top = (0.0, 1.0) if unit == FLAG else _axis_range(low, high)
    begin = now - span_s
    curves = []
    for place, one in enumerate(sorted(together, key=lambda s: -1 if s.gpu is None else s.gpu)):
        finite = [v for v in one.values if _is_drawable(v)]
        if not finite:
            continue
        points = [
            (at, (at - begin) / span_s * WIDTH, HEIGHT - (value - bottom) / (top - bottom) * HEIGHT)
            for at, value in zip(one.times, one.values, strict=False)
            if at >= begin and _is_drawable(value)
        ]
        label = HOST if one.gpu is None else f"GPU {one.gpu}"
        edges = format_short_number(finite[-1]), format_short_number(min(finite)), format_short_number(max(finite))
        curves.append(PlotCurve(label, place % COLOURS, draw_curve(points, BREAK_S), *edges))
    return TelemetryPlot(
        name.replace("_", " "), unit, tuple(curves), format_short_number(bottom), format_short_number(top), begin, now
    )


def _is_drawable(value: float) -> bool:
    return abs(value) <= VALUE_MAX  # excludes infinity and NaN


def _axis_range(low: float, high: float) -> tuple[float, float]:
    """The ends of the axis: a margin around the values, from zero if that is near, never an empty range."""
    room = (high - low) * 0.08 or max(abs(high) * 0.05, 0.5)
    bottom, top = low - room, high + room
    return (0.0 if 0 <= low < (high - low) or low == 0 else bottom), top
