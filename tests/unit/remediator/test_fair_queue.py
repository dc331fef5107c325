"""Whose input is next: the order they came in, as long as nobody hands in much more than others."""

from __future__ import annotations

import queue
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.engine.fair_queue import AHEAD, FairQueue, QueuedItem

HANDED = st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), st.integers(1, 700)), max_size=60)


def taken(from_: FairQueue[int]) -> list[QueuedItem[int] | None]:
    out = []
    while not from_.empty():
        out.append(from_.get_nowait())
    return out


def filled(handed: list[tuple[str, int]]) -> FairQueue[int]:
    fair: FairQueue[int] = FairQueue()
    for number, (lane, weight) in enumerate(handed):
        fair.put_nowait(QueuedItem(number, lane, weight))
    return fair


@given(HANDED, st.lists(st.booleans(), max_size=60))
def test_nothing_is_lost_and_each_lane_keeps_its_order(handed: list[tuple[str, int]], takes: list[bool]) -> None:
    fair: FairQueue[int] = FairQueue()
    out = []
    for number, (lane, weight) in enumerate(handed):
        fair.put_nowait(QueuedItem(number, lane, weight))
        if number < len(takes) and takes[number]:
            out.append(fair.get_nowait())
    out += taken(fair)
    assert sorted(item.what for item in out if item) == list(range(len(handed)))
    for lane in ("", "a", "b", "c"):
        mine = [item.what for item in out if item and item.lane == lane]
        assert mine == sorted(mine)


@given(st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=int(AHEAD)))
def test_who_tells_little_is_served_in_the_order_in_which_all_came(lanes: list[str]) -> None:
    out = taken(filled([(lane, 1) for lane in lanes]))
    assert [item.what for item in out if item] == list(range(len(lanes)))


@given(HANDED.filter(bool), st.sampled_from(["", "z"]))
def test_a_newcomer_waits_for_no_flood(handed: list[tuple[str, int]], lane: str) -> None:
    fair = filled(handed)
    fair.put_nowait(QueuedItem(-1, lane, 1))
    before = [item for item in taken(fair) if item]
    before = before[: [item.what for item in before].index(-1)]
    most = max(weight for _, weight in handed)
    for whose, items in groupby(sorted(before, key=lambda item: item.lane), key=lambda item: item.lane):
        if whose:
            assert sum(item.weight for item in items) <= AHEAD + most


def test_two_floods_are_served_in_turn() -> None:
    fair = filled([("a", 500)] * 20 + [("b", 500)] * 20)
    first = [item.lane for item in taken(fair)[:20] if item]
    assert 9 <= first.count("b") <= 11


def test_who_comes_later_does_not_find_time_that_nobody_used() -> None:
    fair = filled([("a", 500)] * 10)
    for _ in range(5):
        fair.get_nowait()
    for number in range(10):
        fair.put_nowait(QueuedItem(number, "b", 500))
    out = [item.lane for item in taken(fair) if item]
    assert out[:10].count("a") >= 4


def test_a_flood_that_is_over_is_forgotten() -> None:
    fair = filled([("a", 500)] * 10)
    taken(fair)
    for lane in ("a", "b", "a", "b"):
        fair.put_nowait(QueuedItem(0, lane, 1))
    assert [item.lane for item in taken(fair) if item] == ["a", "b", "a", "b"]


@given(HANDED, HANDED)
def test_the_end_comes_after_all_that_was_there_and_before_all_that_came_later(
    handed: list[tuple[str, int]], later: list[tuple[str, int]]
) -> None:
    fair = filled(handed)
    fair.put_nowait(None)
    for lane, weight in later:
        fair.put_nowait(QueuedItem(-1, lane, weight))
    out = taken(fair)
    assert out.index(None) == len(handed)
    assert all(item and item.what == -1 for item in out[len(handed) + 1 :])


def test_there_is_an_end_of_room() -> None:
    fair: FairQueue[int] = FairQueue(1)
    fair.put_nowait(QueuedItem(0, "a", 1))
    with pytest.raises(queue.Full):
        fair.put_nowait(QueuedItem(1, "b", 1))
