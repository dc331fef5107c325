"""Quiet hours. Pure: local time in, UTC seconds out."""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from typing import Literal

import msgspec

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class QuietHours(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"start": "from", "end": "to"}):
    """From one time of day to another, perhaps on the next day; `days` are those on which they begin (empty: all)."""

    start: str  # HH:MM
    end: str  # HH:MM
    days: tuple[Day, ...] = ()  # mon to sun
    timezone: str = "UTC"  # e.g. Europe/Berlin

    def __post_init__(self) -> None:
        for name, text in (("from", self.start), ("to", self.end)):
            if re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", text) is None:
                raise ValueError(f"{name} is '{text}'; write a time of day from 00:00 to 23:59")
        if self.start == self.end:
            raise ValueError("'from' and 'to' are the same; remove the quiet hours, or set different times")
        try:
            zoneinfo.ZoneInfo(self.timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"timezone '{self.timezone}' is unknown; write one like Europe/Berlin") from None


def quiet_hours_end(hours: tuple[QuietHours, ...], at: float) -> float:
    """Return when the quiet hours at `at` (UTC seconds) end; `at` itself outside of them. Adjacent hours are merged."""
    until = at
    for _ in range(len(hours) * 8 + 1):  # each pass skips one of them; a week of adjacent hours ends somewhere
        ends = max((end for one in hours if (end := _quiet_end(one, until)) is not None), default=until)
        if ends <= until:
            break
        until = ends
    return until


def _quiet_end(hours: QuietHours, at: float) -> float | None:
    """Return the end of these quiet hours at `at`, if they apply."""
    zone = zoneinfo.ZoneInfo(hours.timezone)
    today = dt.datetime.fromtimestamp(at, zone).date()
    for day in (today, today - dt.timedelta(days=1)):
        if hours.days and _DAYS[day.weekday()] not in hours.days:
            continue
        begin = dt.datetime.combine(day, dt.time.fromisoformat(hours.start), zone)
        last_day = day if hours.end > hours.start else day + dt.timedelta(days=1)
        end = dt.datetime.combine(last_day, dt.time.fromisoformat(hours.end), zone)
        if begin.timestamp() <= at < end.timestamp():
            return end.timestamp()
    return None
