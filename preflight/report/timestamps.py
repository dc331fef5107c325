"""Formats times for people, and for XML."""

from __future__ import annotations

from datetime import datetime, timezone


def format_moment(at: float) -> str:
    """UTC seconds as a date and time; the number itself if out of range.

    >>> format_moment(1700000000.25)
    '2023-11-14 22:13:20Z'
    """
    try:
        return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"


def format_iso_timestamp(at: float) -> str:
    """UTC seconds as ISO 8601 without a zone, as JUnit's schema requires; the epoch if out of range."""
    try:
        return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "1970-01-01T00:00:00"
