"""What the controller keeps of the nodes that people look at: exactly what they told, of few, and nothing that nobody asked for."""

from __future__ import annotations

from math import isfinite

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from msgspec.json import encode as encode_json

from remediator.fleet.telemetry_cache import NODES_MAX, REQUEST_S, SERIES_MAX, STRANGER, UNASKED, TelemetryCache
from remediator.model.views_telemetry import TelemetryView
from tests.unit.vocabulary.test_telemetry_messages import ALMOST
from vocabulary.messages.telemetry_messages import (
    BUCKET_S,
    BUCKETS,
    GPU_SERIES,
    HOST,
    TelemetryBlock,
    TelemetryPart,
    bucket_of,
)
from vocabulary.messages.wire import encode_message

GPU, OTHER = "0000:3b:00.0", "0000:5e:00.0"
GPUS = {GPU: 0, OTHER: 1}
WALL, START = 1_700_000_000.0, 5_000.0  # the controller's clocks
AHEAD_S = 1_000_000.0  # of the node's monotonic clock
HOUR_S = BUCKETS * BUCKET_S


def part(now: float, *values: float | None, gpu: str = GPU, name: str = "temperature") -> Raw:
    """What a node tells at `now` of the buckets up to the open one."""
    monotonic = now + AHEAD_S
    first = bucket_of(monotonic) - len(values) + 1
    return Raw(encode_message(TelemetryPart(monotonic, (TelemetryBlock(gpu, first, {name: values}),))))


def take(telemetry: TelemetryCache, told: Raw, now: float, node: str = "n1", boot_id: str = "b") -> bool:
    return telemetry.take(node, boot_id, GPUS, told, now, WALL + now)


def view(telemetry: TelemetryCache, now: float, node: str = "n1") -> TelemetryView:
    return telemetry.view(node, GPUS, now, WALL + now)


def asked(now: float = START) -> TelemetryCache:
    telemetry = TelemetryCache()
    telemetry.ask("n1", now)
    return telemetry


def test_what_was_told_is_shown_with_its_unit_in_the_centres_time() -> None:
    telemetry = asked()
    assert view(telemetry, START).at is None
    assert take(telemetry, part(START, 61.0, None, 62.0), START)
    found = view(telemetry, START + 1)
    (series,) = found.series
    assert (found.at, found.until) == (WALL + START, WALL + START + REQUEST_S)
    assert (series.gpu, series.name, series.unit, series.values) == (0, "temperature", "°C", (61.0, 62.0))
    opened = (bucket_of(START + AHEAD_S) * BUCKET_S) - AHEAD_S + WALL
    assert series.times == (opened - 2 * BUCKET_S, opened)


def test_a_reason_for_throttling_is_a_curve_of_its_own() -> None:
    telemetry = asked()
    take(telemetry, part(START, 0.0, 0x44, 0x4, name="throttle reasons"), START)
    assert {s.name: (s.unit, s.values) for s in view(telemetry, START).series} == {
        "throttled: sw_power_cap": ("0 or 1", (0.0, 1.0, 1.0)),
        "throttled: hw_thermal": ("0 or 1", (0.0, 1.0, 0.0)),
    }


def test_the_hosts_curves_come_first_and_belong_to_no_gpu() -> None:
    telemetry = asked()
    blocks = (
        TelemetryBlock(GPU, bucket_of(START + AHEAD_S), {"power": (700.0,)}),
        TelemetryBlock(HOST, bucket_of(START + AHEAD_S), {"memory pressure": (3.5,)}),
    )
    assert take(telemetry, Raw(encode_message(TelemetryPart(START + AHEAD_S, blocks))), START)
    assert [(s.gpu, s.name, s.unit) for s in view(telemetry, START).series] == [
        (None, "memory pressure", "%"),
        (0, "power", "W"),
    ]


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 900), st.integers(0, 5)), min_size=1, max_size=30))
def test_however_it_comes_in_parts_the_whole_is_what_the_node_knew(steps: list[tuple[float, int]]) -> None:
    """A node that grants every wish as asked, with answers lost now and then (0 buckets told), leaves no gap and no echo."""
    telemetry, now, truth = asked(), START, {}
    for pause, lost in steps:
        now += pause
        newest = bucket_of(now + AHEAD_S)
        truth |= {bucket: float(bucket % 97) for bucket in range(max(truth, default=newest), newest + 1)}
        telemetry.ask("n1", now)
        wish = telemetry.pending_request("n1", now)
        assert wish is not None
        if lost == 0:
            continue
        first = max(newest - BUCKETS + 1, bucket_of(now + AHEAD_S - wish.back_s))
        values = [truth.get(bucket) for bucket in range(first, newest + 1)]
        assert take(telemetry, part(now, *values), now)
        (series,) = view(telemetry, now).series
        kept = [bucket for bucket in sorted(truth) if bucket > newest - BUCKETS]
        assert list(series.values) == [truth[bucket] for bucket in kept]
        assert len(set(series.times)) == len(series.times)


def test_a_wish_asks_for_the_whole_hour_first_and_then_for_what_is_new() -> None:
    telemetry = asked()
    assert telemetry.untold("n1", START)
    wish = telemetry.pending_request("n1", START)
    assert wish is not None
    assert (wish.lasts_s, wish.back_s) == (REQUEST_S, HOUR_S)
    assert not telemetry.untold("n1", START)
    take(telemetry, part(START + 1, 1.0), START + 1)
    wish = telemetry.pending_request("n1", START + 5)
    assert wish is not None
    assert (wish.lasts_s, wish.back_s) == (REQUEST_S - 5, 4 + BUCKET_S)


def test_a_wish_ends_by_itself_and_who_asks_on_makes_it_last() -> None:
    telemetry = asked()
    assert telemetry.pending_request("n1", START + REQUEST_S) is None
    assert not telemetry.ask("n1", START + REQUEST_S - 1), "it is no news to the node"
    assert telemetry.pending_request("n1", START + REQUEST_S) is not None
    assert telemetry.ask("n1", START + 3 * REQUEST_S)
    assert telemetry.untold("n1", START + 3 * REQUEST_S)
    assert telemetry.pending_request("n2", START) is None


def test_a_node_that_began_anew_is_asked_for_the_whole_again() -> None:
    telemetry = asked()
    take(telemetry, part(START, 50.0, 51.0), START)
    assert take(telemetry, part(START - AHEAD_S + 90, 52.0), START, boot_id="c")
    assert [series.values for series in view(telemetry, START).series] == [(52.0,)]
    wish = telemetry.pending_request("n1", START)
    assert wish is not None
    assert wish.back_s == HOUR_S


def test_what_the_node_tells_no_more_is_gone_after_an_hour() -> None:
    telemetry = asked()
    take(telemetry, part(START, 50.0), START)
    for later_s in (0, HOUR_S / 2, HOUR_S - BUCKET_S):
        telemetry.ask("n1", START + later_s)
        take(telemetry, part(START + later_s, 700.0, name="power"), START + later_s)
    now = START + HOUR_S - BUCKET_S
    assert {series.name: len(series.values) for series in view(telemetry, now).series} == {"power": 3, "temperature": 1}
    telemetry.ask("n1", START + HOUR_S)
    take(telemetry, part(START + HOUR_S, 700.0, name="power"), START + HOUR_S)
    names = {series.name: len(series.values) for series in view(telemetry, START + HOUR_S).series}
    assert names == {"power": 3}


def test_a_gpu_that_the_node_no_longer_names_is_forgotten() -> None:
    telemetry = asked()
    take(telemetry, part(START, 50.0, gpu=OTHER), START)
    telemetry.take("n1", "b", {GPU}, part(START, 51.0), START, WALL)
    assert [(series.gpu, series.values) for series in view(telemetry, START).series] == [(0, (51.0,))]


@pytest.mark.parametrize(
    ("told", "now", "why"),
    [
        (part(START, 1.0), START + REQUEST_S, UNASKED),
        (part(START, 1.0, gpu="0000:ff:00.0"), START, STRANGER),
        (Raw(b"{"), START, "cannot be read"),
        (Raw(b"[]"), START, "cannot be read"),
    ],
)
def test_what_is_not_taken_is_counted_and_changes_nothing(told: Raw, now: float, why: str) -> None:
    telemetry = asked()
    take(telemetry, part(START, 50.0), START)
    before = view(telemetry, START)
    assert not take(telemetry, told, now)
    assert view(telemetry, START) == before
    assert dict(telemetry.dropped) == {why: 1}


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ALMOST, st.sampled_from(["b", "c"])), max_size=6))
def test_whatever_a_node_tells_what_is_shown_can_be_drawn(parts: list[tuple[object, str]]) -> None:
    telemetry = asked()
    for told, boot_id in parts:
        take(telemetry, Raw(encode_json(told)), START, boot_id=boot_id)
    for series in view(telemetry, START).series:
        assert series.gpu in (None, 0)
        assert 0 < len(series.times) == len(series.values) <= BUCKETS
        assert list(series.times) == sorted(set(series.times))
        assert all(isfinite(number) for number in (*series.times, *series.values))
        assert WALL + START - HOUR_S <= series.times[0] <= series.times[-1] <= WALL + START + 1


def test_a_report_without_is_no_error() -> None:
    telemetry = asked()
    assert not telemetry.take("n1", "b", GPUS, UNSET, START, WALL)
    assert not telemetry.dropped


def test_the_node_that_was_asked_for_longest_ago_makes_room() -> None:
    telemetry = asked()
    for number in range(2, NODES_MAX + 1):
        telemetry.ask(f"n{number}", START)
    telemetry.ask("n1", START + 1)
    telemetry.ask("one more", START + 1)
    assert len(telemetry) == NODES_MAX
    assert telemetry.pending_request("n1", START + 1) is not None
    assert telemetry.pending_request("n2", START + 1) is None


def test_nodes_with_very_many_series_make_room_sooner() -> None:
    telemetry = TelemetryCache()
    gpus = {f"0000:{number:02x}:00.0": number for number in range(32)}
    newest = bucket_of(START + AHEAD_S)
    blocks = tuple(TelemetryBlock(gpu, newest, dict.fromkeys(GPU_SERIES, (1.0,))) for gpu in gpus)
    told = Raw(encode_message(TelemetryPart(START + AHEAD_S, blocks)))
    for number in range(NODES_MAX):
        telemetry.ask(f"n{number}", START)
        assert telemetry.take(f"n{number}", "b", gpus, told, START, WALL)
    fit = SERIES_MAX // (len(GPU_SERIES) * 32)
    assert len(telemetry) == fit < NODES_MAX
    assert telemetry.pending_request(f"n{NODES_MAX - 1}", START) is not None
