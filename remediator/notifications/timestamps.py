"""Time formats of receivers."""

from __future__ import annotations

import datetime as dt


def format_rfc3339(at: float) -> str:
    """Format UTC seconds as ``2026-01-02T03:04:05.678Z``."""
    moment = dt.datetime.fromtimestamp(at, dt.timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
