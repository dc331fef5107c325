"""Two runs beside each other, or a run beside the fleet: what differs, and what differs by more than measurements do. Pure."""

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

CHANGE_MIN = 0.03  # repeats of one measurement on one device differ by less, mostly
CHANGE_UNKNOWN = 0.10  # the same where nobody knows how devices scatter
SIGMAS = 5.0  # a node has hundreds of figures, and each is to be held against another that is as uncertain
DEVICES_MIN = 4  # to show how they scatter
_GRAVER = {
    Outcome.PASS: 0,
    Outcome.NOT_APPLICABLE: 0,
    Outcome.NOT_RUN: 1,
    Outcome.ERROR: 2,
    Outcome.HANG: 3,
    Outcome.FAIL: 3,
}


class ComparisonRow(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement on one device, in `a` and in `b`; None where that side has none. `b` is the one that is looked at.

    `difference` is b over a, less one. `spread` is the share by which good devices scatter, None where nobody knows.
    `beyond` says that the difference is more than that explains; `worse`, that b is the worse of the two by so much. A figure of
    the worst moment, and a fleet of other software, make nothing worse.
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
    """A test that ended worse than before on a device ("" for the node), or a device that is gone (then `test` is empty)."""

    test: str
    device: str
    before: str
    now: str
    reason: str = ""


class _Place(NamedTuple):
    """What is compared: a measurement on a device, in its unit."""

    device: str
    key: MeasurementKey
    unit: str


def compare_runs(a: Document | Baseline, b: Document) -> tuple[ComparisonRow, ...]:
    """What `b` measured, beside an earlier document, another node's, or the fleet's baseline.

    Two documents are compared device by device, and a measurement that only one has stands alone. Beside a baseline every device
    of `b` has the level of all other nodes as `a`.
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
    """What ended worse in `b` than in `a`, and the devices that only `a` has."""
    before, now = _find_worst_outcomes(a), _find_worst_outcomes(b)
    gone = sorted({device.name for device in a.devices} - {device.name for device in b.devices})
    worse = [
        OutcomeChange(test=test, device=device, before=was.value, now=outcome.value, reason=reason)
        for (test, device), (outcome, reason) in now.items()
        if (was := before.get((test, device), (Outcome.PASS, ""))[0]) is not outcome and _GRAVER[outcome] > _GRAVER[was]
    ]
    return (*(OutcomeChange(test="", device=name, before="there", now="gone") for name in gone), *worse)


def _find_worst_outcomes(document: Document) -> dict[tuple[str, str], tuple[Outcome, str]]:
    """The gravest ending of each test on each device, and why."""
    found: dict[tuple[str, str], tuple[Outcome, str]] = {}
    for result in sorted(document.results, key=lambda result: _GRAVER[result.outcome]):
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
    """One reading for each place: that of the middle value where a device was measured several times."""
    several: dict[_Place, list[FigureReading]] = defaultdict(list)
    for reading in found:
        several[_Place(reading.device, reading.key, reading.figure.unit)].append(reading)
    return {place: _select_median_reading(each) for place, each in several.items()}


def _select_median_reading(several: Sequence[FigureReading]) -> FigureReading:
    value = statistics.median(reading.figure.value for reading in several)
    return several[0]._replace(figure=msgspec.structs.replace(several[0].figure, value=value))


def _estimate_scatter(*sides: Sequence[FigureReading]) -> dict[MeasurementKey, float]:
    """The larger scatter of both sides, over so many devices of a side that they show it."""
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
