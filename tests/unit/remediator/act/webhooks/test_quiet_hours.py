"""Quiet hours: any day, any zone, across midnight and across a change of clocks."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.notifications.quiet_hours import QuietHours, quiet_hours_end

BERLIN = ZoneInfo("Europe/Berlin")


def hours(**changes: object) -> QuietHours:
    return msgspec.convert({"from": "22:00", "to": "07:00", "timezone": "Europe/Berlin", **changes}, QuietHours)


def at(text: str) -> float:
    return dt.datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()


def local(when: float) -> str:
    return dt.datetime.fromtimestamp(when, BERLIN).isoformat(timespec="minutes")[:16]


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-11-20T21:59", "2026-11-20T21:59"),
        ("2026-11-20T22:00", "2026-11-21T07:00"),
        ("2026-11-21T06:59", "2026-11-21T07:00"),
        ("2026-11-21T07:00", "2026-11-21T07:00"),
        ("2026-03-28T23:00", "2026-03-29T07:00"),  # the night that lacks an hour
        ("2026-10-24T23:00", "2026-10-25T07:00"),  # the night that has one more
    ],
)
def test_a_night(now: str, until: str) -> None:
    assert local(quiet_hours_end((hours(),), at(now))) == until


def test_days_are_those_on_which_it_begins() -> None:
    weekend = (hours(days=["fri"]),)
    assert local(quiet_hours_end(weekend, at("2026-11-21T06:00"))) == "2026-11-21T07:00"  # a Saturday morning
    assert local(quiet_hours_end(weekend, at("2026-11-21T23:00"))) == "2026-11-21T23:00"


def test_hours_that_touch_are_one() -> None:
    both = (hours(), hours(**{"from": "07:00", "to": "09:00"}))
    assert local(quiet_hours_end(both, at("2026-11-20T23:00"))) == "2026-11-21T09:00"


def test_hours_that_never_end_still_give_an_answer() -> None:
    always = (hours(**{"from": "00:00", "to": "12:00"}), hours(**{"from": "12:00", "to": "00:00"}))
    assert quiet_hours_end(always, at("2026-11-20T23:00")) > at("2026-11-20T23:00")


@given(
    st.floats(0, 4e9), st.integers(0, 23), st.integers(0, 23), st.sampled_from(["UTC", "Asia/Kolkata", "Europe/Berlin"])
)
def test_the_end_is_a_time_that_is_not_quiet(now: float, start: int, end: int, zone: str) -> None:
    if start == end:
        return
    one = (hours(**{"from": f"{start:02}:00", "to": f"{end:02}:00", "timezone": zone}),)
    until = quiet_hours_end(one, now)
    assert now <= until <= now + 25 * 3600
    assert quiet_hours_end(one, until) == until


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"from": "7:00"}, "from is '7:00'; write a time of day"),
        ({"to": "24:00"}, "to is '24:00'"),
        ({"to": "22:00"}, "are the same"),
        ({"timezone": "Mars/Base"}, "timezone 'Mars/Base' is unknown"),
        ({"timezone": "../../etc/passwd"}, "is unknown"),
        ({"days": ["fry"]}, "Invalid enum value 'fry'"),
    ],
)
def test_a_mistake_is_named(changes: dict[str, object], says: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=says.replace("(", r"\(")):
        hours(**changes)
