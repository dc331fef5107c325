"""Windows of many ranks, whatever way they come in, at the same place of the same matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from remediator.monitoring.analysis_passes import PASS_ROWS, AnalysisPasses
from remediator.monitoring.step_windows import (
    GROWTH,
    LEFT_S,
    PAUSE_S,
    RANKS_PER_NODE,
    ROWS,
    NodeRankReport,
    StepWindowMatrix,
    is_possible_rank,
)
from tests.unit.remediator.watch.fleet import Fleet
from vocabulary.messages.wire import StepWindow

LAST = 40


def told(rows: int = LAST, nodes: int = 3) -> list[list[NodeRankReport]]:
    fleet = Fleet(nodes)
    return [fleet.say() for _ in range(rows)]


def filled(words: list[list[NodeRankReport]]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    timings = StepWindowMatrix()
    for heard in words:
        timings.take(heard)
    return np.asarray(timings.trace(0, LAST).cells["backward_s"])


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=3 * LAST, max_size=3 * LAST))
def test_reports_that_are_late_lost_or_told_twice_change_nothing(fates: list[int]) -> None:
    words = told()
    whole = filled(words)
    late: list[NodeRankReport] = []
    changed = []
    for row, heard in enumerate(words):
        now = [*late]
        late = []
        for place, word in enumerate(heard):
            fate = fates[3 * row + place]
            if row == LAST - 1 or fate in (0, 3, 4):
                now.append(word)
            if fate == 1:
                late.append(word)
            if fate == 3:
                now.append(word)
        changed.append(now)
    found = filled(changed)
    known = np.isfinite(found)
    assert known.mean() > 0.9
    np.testing.assert_allclose(found[known], whole[known], rtol=1e-5)


def test_finer_windows_are_put_together_and_a_coarser_cut_begins_anew() -> None:
    timings = StepWindowMatrix()
    base = Fleet(1).rank(0)

    def say(first: int, size: int, seconds: float, ranks: range) -> None:
        windows = (StepWindow(first, size, size, seconds, backward_s=seconds),)
        timings.take([NodeRankReport("n0", [replace(base, rank=rank, windows=windows) for rank in ranks], 0.0)])

    say(0, 4, 1.0, range(8))
    say(4, 2, 2.0, range(8))
    say(6, 2, 4.0, range(8))
    assert timings.grid == 4
    assert timings.trace(0, 2).cells["backward_s"][:, 3].tolist() == [1.0, 3.0]
    say(8, 8, 5.0, range(3))
    assert timings.grid == 4, "three of eight are too few to cut everybody's rows"
    say(8, 8, 5.0, range(8))
    assert (timings.grid, timings.frontier) == (8, 1)
    assert np.isnan(timings.trace(0, 1).cells.get("backward_s", np.full((1, 8), np.nan))).all()


def test_a_job_that_went_back_is_followed_and_no_memory_grows() -> None:
    timings, fleet = StepWindowMatrix(), Fleet(2)
    for _ in range(3 * ROWS):
        timings.take(fleet.say())
    assert timings.frontier == 3 * ROWS - 1
    fleet.row = 10
    for _ in range(12):
        timings.take(fleet.say())
    assert timings.frontier == 21
    assert np.isfinite(timings.trace(12, 21).cells["forward_s"]).all()
    assert timings._weight.shape == (ROWS, 16)


def test_a_rank_is_the_nodes_that_told_of_it_first_until_that_is_silent_for_long() -> None:
    timings = StepWindowMatrix()
    rank = Fleet(2).rank(3, (StepWindow(0, 4, 4, 1.0, backward_s=1.0),))
    timings.take([NodeRankReport("n0", [rank], 0.0), NodeRankReport("n1", [rank], 0.0)])
    for at in np.arange(0.0, LEFT_S, PAUSE_S).tolist():
        timings.take([NodeRankReport("n1", [rank], at)])
    assert timings.seats[3].node == "n0"
    timings.take([NodeRankReport("n1", [rank], LEFT_S)])
    assert timings.seats[3].node == "n1"


def test_a_dead_rank_has_no_place_and_keeps_the_living_one_of_another_node_from_none() -> None:
    timings = StepWindowMatrix()
    rank = Fleet(2).rank(3, (StepWindow(0, 4, 4, 1.0, backward_s=1.0),))
    dead = replace(rank, alive=False)
    timings.take([NodeRankReport("n0", [dead], 0.0)])
    assert not timings.seats
    timings.take([NodeRankReport("n0", [rank, dead], 1.0), NodeRankReport("n1", [dead], 1.0)])
    assert timings.seats[3].node == "n0", (
        "it began again beside its dead page, and only its own node may say that it died"
    )
    timings.take([NodeRankReport("n0", [dead], 2.0), NodeRankReport("n1", [rank], 2.0)])
    assert timings.seats[3].node == "n1"


def test_rows_become_shorter_when_most_ranks_steps_became_much_longer() -> None:
    timings, base = StepWindowMatrix(), Fleet(1).rank(0)

    def say(first: int, size: int, ranks: range) -> None:
        windows = (StepWindow(first, size, size, 1.0, backward_s=1.0),)
        timings.take([NodeRankReport("n0", [replace(base, rank=rank, windows=windows) for rank in ranks], 0.0)])

    say(0, 1024, range(8))
    say(1024, 512, range(8))
    assert timings.grid == 1024, "half as long are put together"
    say(1536, 1, range(4))
    assert timings.grid == 1024, "half of the ranks are not most of them"
    say(1536, 1, range(8))
    assert (timings.grid, timings.frontier) == (1, 1536)


def test_rows_of_unequally_many_measured_steps_keep_their_own_means() -> None:
    timings, base = StepWindowMatrix(), Fleet(1).rank(0)
    for first, steps, seconds in ((0, 1024, 2.0), (1024, 1, 3.0)):
        windows = (StepWindow(first, 1024, steps, seconds, backward_s=seconds),)
        timings.take([NodeRankReport("n0", [replace(base, windows=windows)], 0.0)])
    assert timings.trace(0, 2).cells["backward_s"][:, 0].tolist() == [2.0, 3.0]


def test_however_many_ranks_a_node_invents_it_has_as_many_as_a_node_may() -> None:
    timings, base = (
        StepWindowMatrix(),
        replace(Fleet(1).rank(0, (StepWindow(0, 4, 4, 1.0, backward_s=1.0),)), world=1 << 20),
    )
    for look in range(40):
        invented = [replace(base, rank=RANKS_PER_NODE * look + place) for place in range(2 * RANKS_PER_NODE)]
        timings.take([NodeRankReport("liar", invented, 4.0 * look)])
        assert len(timings.seats) <= RANKS_PER_NODE
    assert timings._weight.shape[1] <= RANKS_PER_NODE + RANKS_PER_NODE // GROWTH, "what is left is given to the next"
    assert min(timings.seats) > RANKS_PER_NODE, "those that are told of no more have gone"


def test_ranks_that_left_keep_nobody_back_and_a_time_in_which_nobody_was_heard_is_nobodys_leave() -> None:
    timings, fleet = StepWindowMatrix(), Fleet(3)
    for _ in range(8):
        timings.take(fleet.say())
    fleet.row += 1000
    timings.take(fleet.say()[:1])
    assert len(timings.seats) == 24
    for _ in range(40):
        timings.take(fleet.say()[:1])
    assert (len(timings.seats), timings.frontier) == (8, fleet.row - 1)
    assert timings.arrived(fleet.row - 1) == 1.0


@pytest.mark.parametrize(
    "window",
    [
        StepWindow(2**60, 4, 4, 1.0), StepWindow(2, 4, 4, 1.0), StepWindow(0, 3, 3, 1.0), StepWindow(0, 2048, 9, 1.0),
        StepWindow(0, 4, 5, 1.0), StepWindow(0, 4, 4, -1.0), StepWindow(-4, 4, 4, 1.0), StepWindow(0, 4, 4, 1.0, 1e300),
    ],
)  # fmt: skip
def test_what_no_rank_can_have_measured_is_passed_over(window: StepWindow) -> None:
    timings = StepWindowMatrix()
    timings.take([NodeRankReport("n0", [Fleet(1).rank(0, (window,)), replace(Fleet(1).rank(9), world=4)], 0.0)])
    assert (timings.frontier, timings.grid) == (-1, 0)
    assert 9 not in timings.seats


def test_places_in_groups_are_counted_as_the_detector_wants_them() -> None:
    timings = StepWindowMatrix()
    ranks = [
        replace(Fleet(1).rank(n), pipeline_stage=n // 4, tensor_group=n // 2, data_group=n // 4 * 2 + n % 2)
        for n in range(8)
    ]
    timings.take([NodeRankReport("n0", ranks, 0.0)])
    places = timings.trace(0, 0).places
    assert places["tp_rank"].tolist() == [0, 1] * 4
    assert places["dp_rank"].tolist() == [0, 0, 1, 1] * 2
    assert places["pp_rank"].tolist() == [0] * 4 + [1] * 4


@pytest.mark.parametrize("number", [2**52, -(2**70)])
def test_no_job_has_numbers_that_fit_no_matrix(number: int) -> None:
    rank = Fleet(1).rank(0)
    assert is_possible_rank(rank)
    assert not any(is_possible_rank(replace(rank, **{name: number})) for name in ("attempt", "rank", "world", "step"))


def test_rows_that_cannot_be_judged_are_not_tried_for_ever() -> None:
    passes, fleet, failed = AnalysisPasses(), Fleet(nodes=1), 0
    for _ in range(8 + 3 * PASS_ROWS):
        passes.take(fleet.say())
        if not passes.last and not failed:
            passes.timings.seats[3] = passes.timings.seats[3]._replace(tensor_group=2**63)
        try:
            passes.judge(fleet.now)
        except OverflowError:
            failed += 1
    assert failed == 1
    assert passes.conclusion is not None


def test_what_is_told_twice_weighs_once_and_an_old_row_leaves_nothing_to_the_one_in_its_place() -> None:
    timings, base = StepWindowMatrix(), Fleet(1).rank(0)

    def say(row: int, seconds: float, times: int) -> None:
        windows = (StepWindow(4 * row, 4, 4, seconds, backward_s=seconds),)
        timings.take(
            times * [NodeRankReport("n0", [replace(base, rank=rank, windows=windows) for rank in range(8)], 0.0)]
        )

    say(0, 1.0, times=2)
    say(0, 1.0, times=1)
    assert timings._weight[0, :8].tolist() == 8 * [4.0]
    for row in range(1, ROWS + 1):
        say(row, 1.0 if row < ROWS else 3.0, times=1)
    assert timings.trace(ROWS, ROWS + 1).cells["backward_s"].tolist() == [8 * [3.0]]
