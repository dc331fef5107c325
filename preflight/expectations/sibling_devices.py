"""Compares a device with the others of its node in the same run: same environment, time and software. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable

from preflight.expectations.bounds import SHARE_MAX, SourceBound, build_expectation, compute_shortfall, describe_figure
from preflight.expectations.measurement_keys import (
    FigureReading,
    MeasurementKey,
    compute_spread,
    format_value,
    is_temperature,
)
from preflight.results import Expectation, Figure, Source
from vocabulary.text.plurals import format_count

OTHERS_MIN = 3
JOINT_TESTS = ("collectives",)  # all devices wait for each other: their figures are one measurement, not eight
WARN_SHARE = 0.05  # healthy GPUs of one node differ by this much in a product's rate
FAIL_SHARE = 0.09  # where the fleet knows the scatter
UNKNOWN_SHARE = 0.12
SIGMAS = 5.0  # for larger spreads, this multiple of the spread
HOTTER_C = 12.0


class SiblingReadings:
    """The values of all devices in one run, by measurement."""

    def __init__(self, readings: Iterable[FigureReading]) -> None:
        self._values: dict[MeasurementKey, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for reading in readings:
            if reading.device:
                self._values[reading.key][reading.device].append(reading.figure.value)

    def find_joint_value(self, key: MeasurementKey) -> float | None:
        """The median over all devices of a figure that they measure together; None for another one."""
        values = [value for each in self._values.get(key, {}).values() for value in each]
        return statistics.median(values) if key.test in JOINT_TESTS and values else None

    def bound(
        self, key: MeasurementKey, device: str, figure: Figure, scatter: float | None = None
    ) -> SourceBound | None:
        """The bound from the other devices; None for fewer than three. It never decides if their spread is too large.

        `scatter` is the spread within a node, as a share, if the fleet knows it: seven siblings estimate it poorly.
        """
        others = [value for name, values in self._values.get(key, {}).items() if name != device for value in values]
        if len(others) < OTHERS_MIN or not device or key.test in JOINT_TESTS:
            return None
        usual = statistics.median(others)
        if is_temperature(figure):
            hot = Expectation(
                source=Source.SIBLINGS,
                at_most=usual + HOTTER_C,
                fails=False,
                words=f"{HOTTER_C:g} °C over their median",
            )
            return SourceBound(expectation=hot, usual=usual, witnesses=len(others))
        apart = compute_spread(others) if scatter is None else scatter
        share = min(SHARE_MAX, max(UNKNOWN_SHARE if scatter is None else FAIL_SHARE, SIGMAS * apart))
        doubt = (
            f"devices scatter by {apart:.0%}: too much for a verdict by this bound alone"
            if SIGMAS * apart > SHARE_MAX
            else ""
        )
        words = f"{share:.0%} worse than the median of {format_count(len(others), 'other')}, {format_value(usual)}"
        expectation = build_expectation(figure, Source.SIBLINGS, usual, share, words)
        return (
            SourceBound(expectation=expectation, usual=usual, witnesses=len(others), doubt=doubt)
            if expectation
            else None
        )


def describe_sibling_gap(figure: Figure, said_by: SourceBound) -> str:
    """A non-failing gap to report: slightly slow, or so fast that the others must be slow."""
    if said_by.expectation.at_most is None and said_by.expectation.at_least is None:
        return ""
    if is_temperature(figure):
        over = figure.value - said_by.usual
        return (
            f"{describe_figure(figure)}, {over:.0f} °C over the median of its siblings; check its cooling"
            if over > HOTTER_C
            else ""
        )
    share = compute_shortfall(figure, said_by.usual)
    if share >= WARN_SHARE:
        return f"{describe_figure(figure)}, {share:.1%} worse than the median of its siblings, {format_value(said_by.usual)}"
    if share <= -FAIL_SHARE / (1 - FAIL_SHARE):
        return f"{describe_figure(figure)}, {-share:.0%} better than the median of its siblings: check whether most of them are slow"
    return ""
