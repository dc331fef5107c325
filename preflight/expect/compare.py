"""Two runs beside each other, or a run beside the fleet: what differs, and what differs by more than measurements do. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from preflight.expect.figures import Better, Key, Reading, better, readings, spread, stack
from preflight.expect.fleet import Baseline, level
from preflight.results import Document

CHANGE_MIN = 0.03  # repeats of one measurement on one device differ by less, mostly
SIGMAS = 3.0


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement on one device, in `a` and in `b`; None where that side has none. `b` is the one that is looked at.

    `difference` is b over a, less one. `spread` is the share by which good devices scatter, as far as the two sides show.
    `beyond` says that the difference is more than that explains; `worse`, that b is the worse of the two by so much.
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
    spread: float = 0.0
    beyond: bool = False
    worse: bool = False


def compare(a: Document | Baseline, b: Document) -> tuple[Row, ...]:
    """What `b` measured, beside an earlier document, another node's, or the fleet's baseline.

    Two documents are compared device by device, and a measurement that only one has stands alone. Beside a baseline every device
    of `b` has the level of all nodes as `a`.
    """
    theirs = list(readings(b.results, b.devices))
    if isinstance(a, Baseline):
        return _with_fleet(a, theirs, stack(b.software))
    mine = list(readings(a.results, a.devices))
    ours, others = _by_place(mine), _by_place(theirs)
    scatter = _scatter(mine, theirs)
    units = {(r.device, r.key): r.figure.unit for r in (*theirs, *mine)}
    places = dict.fromkeys((*ours, *others))
    return tuple(
        _row(place, units[place], ours.get(place), others.get(place), scatter.get(place[1], 0.0)) for place in places
    )


def _with_fleet(baseline: Baseline, measured: Sequence[Reading], software: str) -> tuple[Row, ...]:
    known = [(entry, at) for entry in baseline.entries if (at := level(entry))]
    known.sort(key=lambda each: (each[0].software == software, each[1].nodes))
    levels = {entry.key: (entry.unit, at) for entry, at in known}  # the last of a key holds: that of our software
    found = []
    units = {(r.device, r.key): r.figure.unit for r in measured}
    for place, value in _by_place(measured).items():
        of_unit, at = levels.get(place[1], ("", None))
        if of_unit != units[place]:
            at = None
        found.append(_row(place, units[place], at.usual if at else None, value, at.spread if at else 0.0))
    return tuple(found)


def _row(place: tuple[str, Key], unit: str, a: float | None, b: float | None, scatter: float) -> Row:
    device, key = place
    difference = b / a - 1 if a is not None and b is not None and a > 0 else None
    beyond = difference is not None and abs(difference) > max(CHANGE_MIN, SIGMAS * scatter)
    less_is_worse = better(unit) is Better.MORE
    worse = beyond and better(unit) is not Better.NEITHER and ((difference or 0.0) < 0) is less_is_worse
    return Row(
        device=device,
        product=key.product,
        test=key.test,
        figure=key.figure,
        setting=key.setting,
        unit=unit,
        a=a,
        b=b,
        difference=difference,
        spread=scatter,
        beyond=beyond,
        worse=worse,
    )


def _by_place(found: Sequence[Reading]) -> dict[tuple[str, Key], float]:
    values: dict[tuple[str, Key], list[float]] = defaultdict(list)
    for reading in found:
        values[reading.device, reading.key].append(reading.figure.value)
    return {place: statistics.median(several) for place, several in values.items()}


def _scatter(*sides: Sequence[Reading]) -> dict[Key, float]:
    """The larger scatter of both sides over at least four devices; fewer show none."""
    found: dict[Key, float] = defaultdict(float)
    for side in sides:
        values: dict[Key, list[float]] = defaultdict(list)
        for reading in side:
            values[reading.key].append(reading.figure.value)
        for key, several in values.items():
            if len(several) >= 4:
                found[key] = max(found[key], spread(several))
    return found
