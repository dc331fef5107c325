"""What the launcher's events become: one record for each swap, whatever the events hold."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from healthd.launcher.process_groups.swap_records import SwapRecords
from vocabulary.messages.message_bounds import holds_nul
from vocabulary.messages.swap_messages import SWAPS_BYTES_MAX, SWAPS_PER_JOB_MAX, JobSwap, JobSwaps, LostRank

PHASES = {"decided": 0.1, "met": 0.2, "state": 0.3, "first step": 0.4}


def event(kind: str, at: float = 100.0, **facts: Any) -> dict[str, Any]:
    return {"at": at, "event": kind, "job": "j", "attempt": 1, "text": f"the text of {kind}", **facts}


def lost(rank: int, node: str, at: float = 100.0) -> dict[str, Any]:
    return event("rank_lost", at, generation=0, rank=rank, node=node)


def replaced(rank: int, before: str, after: str) -> dict[str, Any]:
    return event("rank_replaced", 100.2, generation=1, rank=rank, before=before, after=after)


def completed(kind: str, **facts: Any) -> dict[str, Any]:
    done = {"generation": 1, "step": 8, "lost": 0, "source": "memory", "seconds": 1.0, "phases": PHASES}
    return event(kind, 101.0, **done | facts)


IMPOSSIBLE = event("swap_impossible", 100.1)
ENDED = event("attempt_ended", 103.0, outcome="crashed", ranks=[{"rank": 0, "code": 1}], step=7, seconds=9.0)
STARTED = event("attempt_started", 104.0, nodes=["a"], ranks_per_node=1) | {"attempt": 2}


def fold(*events: dict[str, Any]) -> tuple[JobSwap, ...]:
    records = SwapRecords("j")
    for each in events:
        records.take(each)
    return records.swaps


def test_a_lost_rank_is_replaced() -> None:
    assert fold(lost(1, "b"), replaced(1, "b", "c"), completed("swapped")) == (
        JobSwap(
            job="j", attempt=1, at=100.0, outcome="swapped", generation=1, lost=(LostRank(1, "b", "c"),), lost_ranks=1,
            seconds=1.0, phases=PHASES, lost_steps=0, step=8, source="memory",
        ),
    )  # fmt: skip


def test_its_successor_is_lost_in_turn_while_it_joins() -> None:
    events = (lost(1, "b"), replaced(1, "b", "c"), lost(1, "c"), replaced(1, "c", "d"), completed("swapped"))
    [swap] = fold(*events)
    assert swap.lost == (LostRank(1, "b", "c"), LostRank(1, "c", "d"))
    assert swap.outcome == "swapped"


@pytest.mark.parametrize(
    ("events", "outcomes"),
    [
        ((lost(1, "b"),), ["under way"]),
        ((lost(1, "b"), IMPOSSIBLE), ["given up"]),
        ((lost(1, "b"), IMPOSSIBLE, ENDED, STARTED), ["restarted"]),
        ((lost(1, "b"), STARTED), ["restarted"]),
        ((lost(1, "b"), ENDED), ["given up"]),
        ((IMPOSSIBLE, ENDED, STARTED), []),
        ((lost(1, "b"), completed("swapped"), IMPOSSIBLE, ENDED, STARTED), ["swapped"]),
        ((lost(1, "b"), completed("swapped"), lost(0, "a"), IMPOSSIBLE), ["swapped", "given up"]),
        ((completed("resumed"),), ["resumed"]),
    ],
)
def test_how_it_ends(events: tuple[dict[str, Any], ...], outcomes: list[str]) -> None:
    assert [swap.outcome for swap in fold(*events)] == outcomes


def test_a_job_shrinks_and_grows() -> None:
    shrinking = event("shrinking", 100.2, generation=1, nodes=["a"], ranks=2, ranks_before=4)
    growing = event("growing", 200.0, generation=2, nodes=["a", "b"], ranks=4, ranks_before=2)
    under_way = fold(lost(2, "b"), lost(3, "b"), shrinking)
    assert [(swap.outcome, swap.ranks, swap.ranks_before) for swap in under_way] == [("under way", 2, 4)]
    events = (lost(2, "b"), lost(3, "b"), shrinking, completed("shrunk", ranks=2, ranks_before=4))
    shrunk, grown = fold(*events, growing, completed("grown", ranks=4, ranks_before=2))
    assert (shrunk.outcome, shrunk.ranks, shrunk.ranks_before, shrunk.lost_ranks) == ("shrunk", 2, 4, 2)
    assert shrunk.lost == (LostRank(2, "b"), LostRank(3, "b"))
    assert (grown.outcome, grown.ranks, grown.ranks_before, grown.lost, grown.at) == ("grown", 4, 2, (), 200.0)


def test_why_it_was_given_up_stays_when_the_job_starts_again() -> None:
    assert [swap.reason for swap in fold(lost(1, "b"), IMPOSSIBLE, ENDED, STARTED)] == ["the text of swap_impossible"]


def test_seconds_that_are_no_number_are_unknown() -> None:
    [swap] = fold(completed("swapped", seconds=float("nan"), phases={"met": float("inf"), "state": 0.5}))
    assert (swap.seconds, swap.phases) == (None, {"state": 0.5})


def test_only_the_newest_are_kept_and_all_lost_ranks_counted() -> None:
    many = [each for n in range(40) for each in (lost(n, "b"), completed("swapped"))]
    assert [swap.lost[0].rank for swap in fold(*many)] == list(range(40 - SWAPS_PER_JOB_MAX, 40))
    [swap] = fold(*(lost(n, "b") for n in range(100)))
    assert (swap.lost_ranks, len(swap.lost)) == (100, 16)


def test_a_message_is_never_too_long_and_keeps_the_newest() -> None:
    records = SwapRecords("j")
    for n in range(SWAPS_PER_JOB_MAX):
        for rank in range(16):
            records.take(lost(rank, "b" * 255))
        records.take(completed("swapped", step=n))
    message = records.message()
    assert len(msgspec.json.encode(message)) <= SWAPS_BYTES_MAX
    assert 0 < len(message.swaps) < SWAPS_PER_JOB_MAX
    assert message.swaps[-1].step == SWAPS_PER_JOB_MAX - 1


KINDS = (
    "rank_lost",
    "rank_replaced",
    "shrinking",
    "growing",
    "swapped",
    "shrunk",
    "grown",
    "resumed",
    "swap_impossible",
)
FIELDS = (
    "attempt", "generation", "rank", "node", "after", "step", "lost", "source", "seconds", "phases", "ranks",
    "ranks_before", "text", "at",
)  # fmt: skip
NUMBERS = st.integers() | st.integers(-(2**80), 2**80) | st.floats() | st.just(10**400)
ODD = NUMBERS | st.text() | st.sampled_from(["x" * 5000, "a\0b", "\ud800"]) | st.none() | st.lists(st.integers())
EVENTS = st.builds(
    lambda kind, facts: event(kind) | facts,
    st.sampled_from((*KINDS, "attempt_started", "attempt_ended")) | st.text(max_size=9),
    st.dictionaries(st.sampled_from(FIELDS), ODD | st.dictionaries(st.text(), NUMBERS), max_size=6),
)


@given(job=st.text() | st.just("\ud800" * 300), events=st.lists(EVENTS, max_size=12))
@example(job="j", events=[event("swapped", seconds=float("nan"), phases={"a": float("inf")}, source="a\0b")])
@example(job="j", events=[event("rank_lost", at=float("-inf"), rank=2**80, node="\ud800")])
def test_whatever_the_events_hold_the_message_is_within_its_bounds(job: str, events: list[dict[str, Any]]) -> None:
    records = SwapRecords(job or "j")
    for each in events:
        records.take(each)
    body = msgspec.json.encode(records.message())
    assert msgspec.json.decode(body, type=JobSwaps) == records.message()
    assert not holds_nul(body)
    assert len(body) <= SWAPS_BYTES_MAX
