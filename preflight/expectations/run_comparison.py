"""Compares two runs, or a run with the fleet: which figures differ, and which by more than the usual spread. Pure."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from preflight.expectations.bounds import SourceWeight, misses_bound
from preflight.expectations.fleet_baseline import Baseline, FleetComparison
from preflight.expectations.measurement_keys import (
    BetterDirection,
    FigureReading,
    MeasurementKey,
    compute_spread,
    describe_software_stack,
    find_better_direction,
    is_extreme,
    iterate_readings,
)
from preflight.results import Document, Outcome

CHANGE_MIN = 0.03  # repeated measurements on one device mostly differ by less
CHANGE_UNKNOWN = 0.10  # the same if the spread is unknown
SIGMAS = 5.0  # a node has hundreds of figures, each compared with another uncertain one
DEVICES_MIN = 4  # for an estimate of the spread
_RANK_OF_OUTCOME = {
    Outcome.PASS: 0,
    Outcome.NOT_APPLICABLE: 0,
    Outcome.NOT_RUN: 1,
    Outcome.ERROR: 2,
    Outcome.HANG: 3,
    Outcome.FAIL: 3,
}


class ComparisonRow(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement on one device, in `a` and in `b`; None if that side has none. `b` is the run under test.

    `difference` is b over a, minus one. `spread` is the spread of healthy devices as a share, None if unknown. `beyond`: the
    difference exceeds the spread; `worse`: b is worse by that much. Extreme values, and a fleet with other software, are
    never counted as worse.
    """

    device: str
    product: str
    test: str
    figure: str
    setting: str
    unit: str
    a: float | None
    b: float | None
    difference: float | None = None
    spread: float | None = None
    beyond: bool = False
    worse: bool = False


class OutcomeChange(msgspec.Struct, frozen=True, kw_only=True):
    """A test with a worse outcome than before on a device ("" for the node), or a missing device (then `test` is empty)."""

    test: str
    device: str
    before: str
    now: str
    reason: str = ""


class _Place(NamedTuple):
    """The compared item: a measurement on a device, in its unit."""

    device: str
    key: MeasurementKey
    unit: str


def compare_runs(a: Document | Baseline, b: Document) -> tuple[ComparisonRow, ...]:
    """Compare `b` with an earlier document, another node's, or the fleet's baseline.

    Two documents are compared device by device; a measurement in only one of them stands alone. With a baseline, every device
    of `b` is compared with the level of all other nodes as `a`.
    """
    theirs = list(iterate_readings(b.results, b.devices))
    if isinstance(a, Baseline):
        fleet = FleetComparison(
            a, b.node, describe_software_stack(b.software), [device.uuid for device in b.devices if device.uuid]
        )
        return tuple(_compare_with_fleet(fleet, place, reading) for place, reading in _group_by_place(theirs).items())
    mine = list(iterate_readings(a.results, a.devices))
    ours, others, scatter = _group_by_place(mine), _group_by_place(theirs), _estimate_scatter(mine, theirs)
    places = dict.fromkeys((*ours, *others))
    return tuple(
        _compare_readings(place, ours.get(place), others.get(place), scatter.get(place.key)) for place in places
    )


def find_worse_outcomes(a: Document, b: Document) -> tuple[OutcomeChange, ...]:
    """Tests with a worse outcome in `b` than in `a`, and devices that only `a` has."""
    before, now = _find_worst_outcomes(a), _find_worst_outcomes(b)
    gone = sorted({device.name for device in a.devices} - {device.name for device in b.devices})
    worse = [
        OutcomeChange(test=test, device=device, before=was.value, now=outcome.value, reason=reason)
        for (test, device), (outcome, reason) in now.items()
        if (was := before.get((test, device), (Outcome.PASS, ""))[0]) is not outcome
        and _RANK_OF_OUTCOME[outcome] > _RANK_OF_OUTCOME[was]
    ]
    return (*(OutcomeChange(test="", device=name, before="there", now="gone") for name in gone), *worse)


def _find_worst_outcomes(document: Document) -> dict[tuple[str, str], tuple[Outcome, str]]:
    """The worst outcome of each test on each device, with its reason."""
    found: dict[tuple[str, str], tuple[Outcome, str]] = {}
    for result in sorted(document.results, key=lambda result: _RANK_OF_OUTCOME[result.outcome]):
        found[result.test, result.device] = (result.outcome, result.reason)
    return found


def _compare_with_fleet(fleet: FleetComparison, place: _Place, reading: FigureReading) -> ComparisonRow:
    at = fleet.bound(place.key, reading.figure)
    value = reading.figure.value
    missed = at is not None and misses_bound(value, at.expectation)
    worse = missed and at is not None and at.word is not SourceWeight.HINT and not is_extreme(reading.figure)
    usual = at.usual if at else None
    return _build_row(place, usual, value, fleet.scatter(place.key, reading.figure), beyond=missed, worse=worse)


def _compare_readings(
    place: _Place, a: FigureReading | None, b: FigureReading | None, scatter: float | None
) -> ComparisonRow:
    if a is None or b is None or a.figure.value <= 0:
        return _build_row(place, a and a.figure.value, b and b.figure.value, scatter)
    difference = b.figure.value / a.figure.value - 1
    beyond = abs(difference) > (CHANGE_UNKNOWN if scatter is None else max(CHANGE_MIN, SIGMAS * math.sqrt(2) * scatter))
    way = find_better_direction(place.unit)
    against = way is not BetterDirection.NEITHER and (difference < 0) is (way is BetterDirection.MORE)
    worse = beyond and against and not is_extreme(b.figure)
    return _build_row(place, a.figure.value, b.figure.value, scatter, beyond=beyond, worse=worse)


def _build_row(
    place: _Place, a: float | None, b: float | None, scatter: float | None, *, beyond: bool = False, worse: bool = False
) -> ComparisonRow:
    return ComparisonRow(
        device=place.device,
        product=place.key.product,
        test=place.key.test,
        figure=place.key.figure,
        setting=place.key.setting,
        unit=place.unit,
        a=a,
        b=b,
        difference=b / a - 1 if a is not None and b is not None and a > 0 else None,
        spread=scatter,
        beyond=beyond,
        worse=worse,
    )


def _group_by_place(found: Sequence[FigureReading]) -> dict[_Place, FigureReading]:
    """One reading per place: the median if a device was measured several times."""
    several: dict[_Place, list[FigureReading]] = defaultdict(list)
    for reading in found:
        several[_Place(reading.device, reading.key, reading.figure.unit)].append(reading)
    return {place: _select_median_reading(each) for place, each in several.items()}


def _select_median_reading(several: Sequence[FigureReading]) -> FigureReading:
    value = statistics.median(reading.figure.value for reading in several)
    return several[0]._replace(figure=msgspec.structs.replace(several[0].figure, value=value))


def _estimate_scatter(*sides: Sequence[FigureReading]) -> dict[MeasurementKey, float]:
    """The larger spread of both sides, if a side has enough devices."""
    found: dict[MeasurementKey, float] = {}
    for key, values in (each for side in sides for each in _group_values(side)):
        if len(values) >= DEVICES_MIN:
            found[key] = max(found.get(key, 0.0), compute_spread(values))
    return found


def _group_values(side: Sequence[FigureReading]) -> Iterator[tuple[MeasurementKey, list[float]]]:
    values: dict[tuple[MeasurementKey, str], list[float]] = defaultdict(list)
    for reading in side:
        values[reading.key, reading.figure.unit].append(reading.figure.value)
    yield from ((key, several) for (key, _), several in values.items())
