"""How a moment is written: for people, and as XML wants it."""

from __future__ import annotations

from datetime import datetime, timezone


def format_moment(at: float) -> str:
    """UTC seconds as a date and time; the number itself if it is no time at all.

    >>> format_moment(1700000000.25)
    '2023-11-14 22:13:20Z'
    """
    try:
        return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"


def format_iso_timestamp(at: float) -> str:
    """UTC seconds as ISO 8601 without a zone, which is what JUnit's schema takes; its beginning for what is no time."""
    try:
        return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "1970-01-01T00:00:00"
