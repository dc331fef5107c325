"""Whom counts name, and where they name nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from healthd.nccl.hang_suspects import Suspicion, count_launches, find_suspects, is_progress
from healthd.nccl.ras_answer import parse_ras_answer
from tests.nodes.nccl_ras.documents import Gone, answer, communicator, write_answer

EIGHT = range(8)


def reduces(count: int) -> tuple[int, ...]:
    return (0, 0, 0, 0, count)


def judge(*communicators: Mapping[int, Sequence[int] | Gone], status: Mapping[int, Any] = {}) -> Suspicion:
    described = (communicator(f"0x{n}", counts, status) for n, counts in enumerate(communicators))
    return find_suspects(parse_ras_answer(write_answer(answer(described))))


def named(suspicion: Suspicion) -> tuple[str, list[int]]:
    """The kind, and the GPU of each suspect: the number of the rank in these jobs of one node."""
    return suspicion.kind, [each.process.gpu for each in suspicion.suspects]


def test_the_rank_with_fewer_calls_is_the_one_that_others_wait_for() -> None:
    found = judge({n: reduces(9 if n == 5 else 10) for n in EIGHT})
    assert named(found) == ("rank_missing", [5])
    assert found.waiting == 7
    assert (found.suspects[0].rank, found.suspects[0].size, found.suspects[0].process.pid) == (5, 8, 4005)


def test_those_that_wait_may_be_ahead_by_different_numbers() -> None:
    assert named(judge({n: reduces(9 if n == 5 else 10 + n) for n in EIGHT})) == ("rank_missing", [5])


def test_a_rank_that_is_behind_because_it_waits_elsewhere_is_a_victim() -> None:
    """Rank 5 is missing in its tensor-parallel pair; rank 4, which waits there, is missing in its data-parallel group."""
    pairs = [{n: reduces(6 if n == 5 else 7 if n == 4 else 8) for n in (a, a + 1)} for a in (0, 2, 4, 6)]
    odd_and_even = [{n: reduces(3 if n in (4, 5) else 4) for n in range(side, 8, 2)} for side in (0, 1)]
    assert named(judge(*pairs, *odd_and_even)) == ("rank_missing", [5])


def test_a_rank_has_its_number_in_its_largest_communicator() -> None:
    found = judge({n: reduces(9 if n == 5 else 10) for n in (5, 4)}, {n: reduces(7) for n in EIGHT})
    assert [(each.rank, each.size) for each in found.suspects] == [(5, 8)]
    found = judge({n: reduces(7) for n in EIGHT}, {n: reduces(9 if n == 5 else 10) for n in (5, 4)})
    assert [(each.rank, each.size) for each in found.suspects] == [(5, 8)]


def test_equal_counts_say_nothing() -> None:
    assert judge({n: reduces(10) for n in EIGHT}) == Suspicion("")
    assert judge({}) == Suspicion("")


def test_too_many_suspects_are_none() -> None:
    found = judge({n: reduces(10 if n == 0 else 9) for n in EIGHT})
    assert named(found) == ("stalled", [])
    assert found.waiting == 1


def test_ranks_that_wait_for_each_other_are_not_named() -> None:
    found = judge({0: reduces(1), 1: reduces(2)}, {0: reduces(2), 1: reduces(1)})
    assert named(found) == ("stalled", [])


def test_a_process_that_does_not_answer_comes_first() -> None:
    found = judge({n: Gone() if n == 3 else reduces(9 if n == 5 else 10) for n in EIGHT})
    assert named(found) == ("rank_silent", [3])
    assert found.waiting == 7
    assert named(judge({n: Gone(unresponsive=False, dead=True) if n == 3 else reduces(9) for n in EIGHT}))[1] == [3]


def test_a_job_that_ends_is_not_stuck() -> None:
    """Most ranks have ended while the first one saves; or the others are about to."""
    assert judge({n: Gone() if n else reduces(10) for n in EIGHT}) == Suspicion("")
    ends = {"finalize_called": True}
    assert judge({n: Gone() if n == 3 else reduces(10) for n in EIGHT}, status={0: ends}) == Suspicion("")


def test_a_rank_that_made_another_call_is_named() -> None:
    counts = {n: (0, 0, 1, 0, 9) if n == 6 else reduces(10) for n in EIGHT}
    assert named(judge(counts)) == ("calls_differ", [6])
    ahead = {n: (0, 0, 1, 0, 9) if n == 6 else reduces(10 + n % 2) for n in EIGHT}
    assert named(judge(ahead)) == ("stalled", []), "no usual calls, so that any of them may be the odd one"


@pytest.mark.parametrize("status", [{"init_state": 7}, {"destroy_flag": True}, {"abort_flag": True}])
def test_a_communicator_that_begins_or_ends_is_no_evidence(status: Mapping[str, Any]) -> None:
    assert judge({n: reduces(9 if n == 5 else 10) for n in EIGHT}, status={2: status}) == Suspicion("")
    left = {n: Gone(unresponsive=False) if n == 2 else reduces(9 if n == 5 else 10) for n in EIGHT}
    assert judge(left) == Suspicion("")


def test_progress_is_a_new_call_or_a_new_communicator_but_no_lost_answer() -> None:
    def launches(*communicators: Mapping[int, Sequence[int] | Gone]) -> Mapping[str, Mapping[int, int]]:
        described = (communicator(f"0x{n}", counts) for n, counts in enumerate(communicators))
        return count_launches(parse_ras_answer(write_answer(answer(described))))

    before = launches({0: reduces(4), 1: reduces(5)})
    assert not is_progress(before, before)
    assert is_progress(before, launches({0: reduces(5), 1: reduces(5)}))
    assert is_progress(before, launches({0: reduces(4), 1: reduces(5)}, {0: reduces(0)}))
    assert not is_progress(before, launches({0: reduces(4), 1: Gone()}))
    assert not is_progress(launches({0: reduces(4), 1: Gone()}), before), "it answers again"
    assert not is_progress(before, {})


def test_a_rank_whose_gpu_is_busy_waits_as_well() -> None:
    """It alone waits for its GPU in each step, as one that prints the loss does, so that its host is behind."""
    read = parse_ras_answer(write_answer(answer([communicator("0x1", {n: reduces(9 + (n > 0)) for n in EIGHT})])))
    (first,) = find_suspects(read).suspects
    assert named(find_suspects(read, {first.process})) == ("stalled", [])
    assert named(find_suspects(read, {rank.process for rank in read.communicators[0].ranks[1:]})) == (
        "rank_missing",
        [0],
    )
