"""Durations, formatted for people."""

from __future__ import annotations

import math

_SIZES = ((60, "min", 1, "s"), (3600, "h", 60, "min"), (86400, "d", 3600, "h"))


def format_duration(seconds: float) -> str:
    """Format a measured duration.

    >>> [format_duration(s) for s in (0.04, 7.25, 303, 7500, 273_600)]
    ['40 ms', '7.2 s', '5 min 3 s', '2 h 5 min', '3 d 4 h']
    """
    if not math.isfinite(seconds) or seconds < 0:
        return f"{seconds:g} s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    size, large, part, small = max(unit for unit in _SIZES if seconds >= unit[0])
    whole, rest = divmod(int(seconds), size)
    return f"{whole} {large} {rest // part} {small}"


def format_period(seconds: float) -> str:
    """Format a configured duration, in usual units and exact to the second.

    >>> [format_period(s) for s in (0.5, 45, 90, 600, 86_400, 2_592_000, 90_061)]
    ['0.5 s', '45 s', '1 min 30 s', '10 min', '1 d', '30 d', '1 d 1 h 1 min 1 s']
    """
    if not math.isfinite(seconds) or seconds < 60:
        return f"{seconds:g} s"
    left, words = round(seconds), []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        whole, left = divmod(left, size)
        words += [f"{whole} {unit}"] if whole else []
    return " ".join(words)
