"""Transposes a document: tests by device, one figure over all devices, pairs as a matrix. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec

from preflight.check_context import Device
from preflight.report.value_format import THE_NODE, list_missed_bounds
from preflight.results import Document, Expectation, Figure, Outcome, Result

_WEIGHT = (Outcome.FAIL, Outcome.HANG, Outcome.ERROR, Outcome.NOT_RUN, Outcome.PASS, Outcome.NOT_APPLICABLE)


class DeviceReading(msgspec.Struct, frozen=True):
    """One figure of one device."""

    device: str
    figure: Figure

    @property
    def missed(self) -> tuple[Expectation, ...]:
        """The bounds it does not meet."""
        return list_missed_bounds(self.figure)

    @property
    def fails(self) -> bool:
        """It misses a bound that fails."""
        return any(bound.fails for bound in self.missed)


class FigureGroup(msgspec.Struct, frozen=True):
    """One figure in one setting, of every device that measured it."""

    test: str
    name: str
    setting: str
    unit: str
    readings: tuple[DeviceReading, ...]

    @property
    def lowest(self) -> DeviceReading:
        """The device with the smallest value."""
        return min(self.readings, key=lambda reading: reading.figure.value)

    @property
    def highest(self) -> DeviceReading:
        """The device with the largest value."""
        return max(self.readings, key=lambda reading: reading.figure.value)

    @property
    def median(self) -> float:
        """Over the devices."""
        return statistics.median(reading.figure.value for reading in self.readings)

    @property
    def worst(self) -> DeviceReading:
        """The device with the least margin; the first if none has one."""
        return min(self.readings, key=lambda reading: _compute_margin(reading.figure))

    @property
    def fails(self) -> bool:
        """A device misses a bound that fails."""
        return any(reading.fails for reading in self.readings)

    @property
    def remarkable(self) -> bool:
        """A device misses a bound, perhaps one that is only remarked upon."""
        return any(reading.missed for reading in self.readings)


class ReportedFailure(msgspec.Struct, frozen=True):
    """One thing that speaks against a pass, at the run's `level`: tests that say the same of the same device share it."""

    level: str
    tests: tuple[str, ...]
    first: Result

    @property
    def where(self) -> str:
        """Which tests, on which device."""
        return ", ".join(self.tests) + (f" on {self.first.device}" if self.first.device else "")


class OutcomeRow(msgspec.Struct, frozen=True):
    """One test: its worst result on each device that had one."""

    test: str
    cells: dict[str, Result]

    @property
    def seconds(self) -> float:
        """Of the device that took longest: all begin a test together."""
        return max((result.seconds for result in self.cells.values()), default=0.0)

    @property
    def worst(self) -> Outcome:
        """Of all devices."""
        return min((result.outcome for result in self.cells.values()), key=_WEIGHT.index)


def order_device_names(names: Iterable[str]) -> tuple[str, ...]:
    """Unique names in numeric order, the node last."""
    return tuple(sorted({name for name in names if name}, key=_by_number))


def group_devices(devices: Iterable[Device]) -> tuple[tuple[str, tuple[Device, ...]], ...]:
    """Devices grouped by product, or by name pattern without one."""
    found: dict[str, list[Device]] = {}
    for device in devices:
        kind = f"{device.label} ({device.product}), no GPU" if device.on_host else device.product or device.label
        found.setdefault(kind, []).append(device)
    return tuple((kind, tuple(same)) for kind, same in found.items())


def build_outcome_rows(results: Iterable[Result]) -> tuple[OutcomeRow, ...]:
    """One row for each test, in the order of the run."""
    cells: dict[str, dict[str, Result]] = {}
    for result in results:
        own = cells.setdefault(result.test, {})
        name = result.device or THE_NODE
        if name not in own or _WEIGHT.index(result.outcome) < _WEIGHT.index(own[name].outcome):
            own[name] = result
    return tuple(OutcomeRow(test, own) for test, own in cells.items())


def group_figures(results: Iterable[Result]) -> tuple[FigureGroup, ...]:
    """Every figure, in the order of the run, with all devices that measured it."""
    found: dict[tuple[str, str, str, str], list[DeviceReading]] = {}
    for result in results:
        for figure in result.figures:
            key = (result.test, figure.name, figure.setting, figure.unit)
            found.setdefault(key, []).append(DeviceReading(result.device or THE_NODE, figure))
    return tuple(
        FigureGroup(*key, readings=tuple(sorted(readings, key=lambda reading: _by_number(reading.device))))
        for key, readings in found.items()
    )


def list_failures(document: Document) -> tuple[ReportedFailure, ...]:
    """What speaks against a pass, worst first."""
    found: dict[tuple[object, ...], list[Result]] = {}
    for number, result in enumerate(document.results):
        if result.outcome in {Outcome.PASS, Outcome.NOT_APPLICABLE}:
            continue
        apart = number if result.locations or not result.reason else -1
        found.setdefault((result.outcome, result.device, result.reason, apart), []).append(result)
    merged = [
        ReportedFailure(document.level, tuple(dict.fromkeys(r.test for r in same)), same[0]) for same in found.values()
    ]
    return tuple(sorted(merged, key=lambda wrong: _WEIGHT.index(wrong.first.outcome)))


def find_tightest_bound(figure: Figure) -> Expectation | None:
    """The bound a figure is nearest to, or farthest beyond; of those that fail if it has one."""
    bounds = [each for each in figure.expected if each.at_least is not None or each.at_most is not None]
    return min(bounds, key=lambda each: (not each.fails, _compute_relative_room(each, figure.value)), default=None)


def count_outcomes(results: Sequence[Result]) -> dict[Outcome, int]:
    """How many results ended how, worst first, without those that did not occur."""
    return {kind: n for kind in _WEIGHT if (n := sum(result.outcome is kind for result in results))}


def _compute_relative_room(bound: Expectation, value: float) -> float:
    """How far inside its nearer limit, as a share of that limit."""
    below = [] if bound.at_least is None else [(value - bound.at_least) / (abs(bound.at_least) or 1.0)]
    above = [] if bound.at_most is None else [(bound.at_most - value) / (abs(bound.at_most) or 1.0)]
    return min([*below, *above])


def _compute_margin(figure: Figure) -> float:
    if figure.margin is not None:
        return figure.margin
    bound = find_tightest_bound(figure)
    return float("inf") if bound is None else _compute_relative_room(bound, figure.value)


def _by_number(name: str) -> tuple[bool, str, int, str]:
    """cuda:2 before cuda:10; the node after all devices."""
    kind, _, digits = name.rpartition(":")
    known = digits.isascii() and digits.isdecimal() and len(digits) < 10
    return name == THE_NODE, kind, int(digits) if known else -1, name
