"""Keys of comparable figures, the better direction of a unit, and implausible values. Pure."""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from preflight.check_context import Device
from preflight.results import Figure, Result

NORMAL_MAD = 1.4826  # a normal distribution's standard deviation over its median absolute deviation

AHEAD_S = 86_400.0  # clocks may differ by a time zone; later times would count as the newest until then


class BetterDirection(enum.Enum):
    """The better direction of a figure in this unit. NEITHER is not compared."""

    MORE = "more"
    LESS = "less"
    NEITHER = "neither"


_BETTER = {
    "GB/s": BetterDirection.MORE,
    "MB/s": BetterDirection.MORE,
    "Gb/s": BetterDirection.MORE,
    "TFLOP/s": BetterDirection.MORE,
    "GFLOP/s": BetterDirection.MORE,
    "MHz": BetterDirection.MORE,
    "us": BetterDirection.LESS,
    "ms": BetterDirection.LESS,
    "s": BetterDirection.LESS,
}
CELSIUS = "°C"
_EXTREMES = ("_p99", "_min", "_max", "_lowest", "_highest")
_STACK = ("driver", "torch", "cuda", "nccl", "triton")
_POSITIVE = {*_BETTER, "W"}


class MeasurementKey(NamedTuple):
    """Two figures with equal keys are the same measurement. `product` is empty if unknown."""

    product: str
    test: str
    figure: str
    setting: str

    def __str__(self) -> str:
        words = f"{self.test} {self.figure}"
        return f"{words} ({self.setting})" if self.setting else words


class FigureReading(NamedTuple):
    """One figure measured by a device of this node."""

    key: MeasurementKey
    device: str
    figure: Figure


def find_better_direction(unit: str) -> BetterDirection:
    """The better direction; NEITHER for unknown units."""
    return _BETTER.get(unit, BetterDirection.NEITHER)


def is_extreme(figure: Figure) -> bool:
    """Whether it is an extreme value: such figures have heavy tails and low repeatability."""
    return figure.name.endswith(_EXTREMES)


def is_temperature(figure: Figure) -> bool:
    """Whether it is a temperature, not a margin to a limit."""
    return figure.unit == CELSIUS and "margin" not in figure.name


def explain_impossible_value(figure: Figure) -> str:
    """Why this number cannot be a measurement; empty if plausible."""
    if not math.isfinite(figure.value):
        return f"{figure.name} is {figure.value}, not a number: the test measured nothing"
    if figure.unit in _POSITIVE and figure.value <= 0:
        return f"{figure.name} is {format_value(figure.value)} {figure.unit}: impossible, the test measured nothing"
    return ""


def map_device_products(devices: Sequence[Device]) -> Mapping[str, str]:
    """Device products by name; under "" that of the whole node, such as ``8 x NVIDIA H200``."""
    names = sorted({d.product for d in devices})
    counts = ((sum(d.product == name for d in devices), name) for name in names)
    node = " and ".join(f"{count} x {name}" for count, name in counts)
    return {**{d.name: d.product for d in devices}, "": node if names and all(names) else ""}


def iterate_readings(results: Sequence[Result], devices: Sequence[Device]) -> Iterator[FigureReading]:
    """Every figure of `results` that is a measurement."""
    product = map_device_products(devices)
    for result in results:
        for figure in result.figures:
            if not explain_impossible_value(figure):
                key = MeasurementKey(product.get(result.device, ""), result.test, figure.name, figure.setting)
                yield FigureReading(key, result.device, figure)


def describe_software_stack(software: Mapping[str, str]) -> str:
    """The software that determines performance, in one line; figures are compared within it."""
    return ", ".join(f"{name} {software[name]}" for name in _STACK if software.get(name))


def compute_spread(values: Sequence[float]) -> float:
    """The spread of `values` as a share of their median: a standard deviation robust to outliers.

    Corrected for small samples, which spread less around their own median than around the true one.
    """
    middle = statistics.median(values)
    if len(values) < 2 or middle <= 0:
        return 0.0
    away = statistics.median(abs(value - middle) for value in values)
    return NORMAL_MAD * away / middle * len(values) / (len(values) - 0.8)


def format_value(value: float) -> str:
    """Four significant digits."""
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
