"""Durations in human form: `90s`, `5m`, `2h`, `3d`; a bare number is seconds."""

from __future__ import annotations

import re
from math import isfinite

import click

_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 365 * 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(ms|[smhdwy]?)", re.ASCII)
SECONDS_MAX = 1e12  # thirty thousand years; more must be a typo


def parse_duration(text: str) -> float:
    """Parse to seconds; units can be combined.

    >>> parse_duration("1h30m")
    5400.0

    Raises:
        ValueError: not a duration.
    """
    compact = text.strip().lower().replace(" ", "").replace(",", "")
    parts = _PART.findall(compact)
    bare = len(parts) > 1 and any(not unit for _, unit in parts)
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not parts or bare or "".join(number + unit for number, unit in parts) != compact or not isfinite(seconds):
        raise ValueError(f"{text!r} is not a duration; use 90s, 5m, 2h, 3d or 1h30m")
    if seconds > SECONDS_MAX:
        raise ValueError(f"{text!r} is too long")
    return seconds


def format_duration_short(seconds: float) -> str:
    """At most two units.

    >>> format_duration_short(5437)
    '1h31m'
    """
    if seconds < 1:
        return f"{seconds * 1000:.3g}ms"
    if seconds < 60:
        return f"{seconds:.3g}s"
    for unit, next_unit in (("d", "h"), ("h", "m"), ("m", "s")):
        if seconds >= _SECONDS[unit] * (1 - 1e-9):
            whole, rest = divmod(round(seconds / _SECONDS[next_unit]), round(_SECONDS[unit] / _SECONDS[next_unit]))
            return f"{whole}{unit}" + (f"{rest}{next_unit}" if rest else "")
    return f"{seconds:.3g}s"


class DurationParam(click.ParamType[float]):
    """An option's value: text in, seconds out."""

    name = "duration"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Reject invalid durations, and 0 where it makes no sense, as wrong usage."""
        if isinstance(value, float):
            return value
        try:
            seconds = parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds == 0 and not self._zero:
            self.fail("must be longer than 0", param, ctx)
        return seconds
