from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.launcher.decisions.relaunch_policy import (
    AttemptHistory,
    AttemptOutcome,
    AttemptProgress,
    AttemptResult,
    Fitness,
    GateMode,
    LaunchAction,
    NodeVerdict,
    RankEnd,
    RetryLimits,
    choose_nodes,
    combine_verdicts,
    compute_backoff,
    decide_next_action,
    judge_attempt,
)

NODES = ("n1", "n2", "n3", "n4")


def ends(*codes: int | None, killed: tuple[int, ...] = ()) -> list[RankEnd]:
    return [RankEnd(rank, NODES[rank], code, rank in killed) for rank, code in enumerate(codes)]


@pytest.mark.parametrize(
    ("ranks", "outcome", "condemned", "code"),
    [
        (ends(0, 0, 0), AttemptOutcome.DONE, set(), 0),
        (ends(91, 90, 91), AttemptOutcome.ORDERED, {"n2"}, 91),
        (ends(91, 91, 91), AttemptOutcome.ORDERED, set(), 91),
        (ends(92, 92, -9, killed=(2,)), AttemptOutcome.ORDERED, {"n3"}, 92),
        (ends(92, 1, 92), AttemptOutcome.ORDERED, set(), 92),
        (ends(92, None, 92, killed=(1,)), AttemptOutcome.ORDERED, {"n2"}, 92),
        (ends(93, 1, 91), AttemptOutcome.NEVER_AGAIN, set(), 93),
        (ends(0, 1, 0), AttemptOutcome.CRASHED, set(), 1),
        (ends(-9, 1, 1), AttemptOutcome.CRASHED, set(), 137),
        (ends(1, -9, -9, killed=(1, 2)), AttemptOutcome.CRASHED, set(), 1),
        (ends(None, 1, 1), AttemptOutcome.LOST, {"n1"}, 75),
        (ends(-9, -9, killed=(0, 1)), AttemptOutcome.CRASHED, set(), 137),
        (ends(0, -9, 0, killed=(1,)), AttemptOutcome.CRASHED, set(), 137),
    ],
)
def test_how_ranks_end_says_what_an_attempt_came_to(
    ranks: list[RankEnd], outcome: AttemptOutcome, condemned: set[str], code: int
) -> None:
    result = judge_attempt(ranks)

    assert (result.outcome, result.condemned, result.code) == (outcome, condemned, code)
    assert result.why


codes = st.one_of(st.none(), st.sampled_from([0, 1, 2, 90, 91, 92, 93, 137, -9, -11, -15]))


@given(st.lists(st.builds(RankEnd, st.integers(0, 9), st.sampled_from(NODES), codes, st.booleans()), min_size=1))
def test_any_ending_has_a_judgement(ranks: list[RankEnd]) -> None:
    result = judge_attempt(ranks)

    assert (result.outcome is AttemptOutcome.DONE) == all(end.code == 0 for end in ranks)
    assert (result.code == 0) == (result.outcome is AttemptOutcome.DONE)
    assert result.condemned <= {end.node for end in ranks}
    assert 0 <= result.code < 256


def verdicts(**said: Fitness) -> list[NodeVerdict]:
    return [NodeVerdict(node, fitness) for node, fitness in said.items()]


FIT, UNKNOWN, UNFIT = Fitness.FIT, Fitness.UNKNOWN, Fitness.UNFIT


@pytest.mark.parametrize(
    ("gate", "excluded", "said", "nodes"),
    [
        (GateMode.PREFER, (), verdicts(n1=FIT, n2=FIT, n3=FIT, n4=FIT), ("n1", "n2", "n3")),
        (GateMode.PREFER, (), [], ("n1", "n2", "n3")),
        (GateMode.PREFER, (), verdicts(n1=UNKNOWN, n2=FIT, n3=FIT, n4=FIT), ("n2", "n3", "n4")),
        (GateMode.PREFER, (), verdicts(n2=UNFIT, n4=FIT), ("n1", "n3", "n4")),
        (GateMode.PREFER, ("n1",), verdicts(n2=UNFIT), None),
        (GateMode.REQUIRE, (), verdicts(n1=FIT, n2=FIT), None),
        (GateMode.REQUIRE, ("n2",), verdicts(n1=FIT, n3=FIT, n4=FIT), ("n1", "n3", "n4")),
        (GateMode.OFF, ("n1",), verdicts(n2=UNFIT), ("n2", "n3", "n4")),
    ],
)
def test_fit_nodes_come_before_silent_ones_and_unfit_ones_never(
    gate: GateMode, excluded: tuple[str, ...], said: list[NodeVerdict], nodes: tuple[str, ...] | None
) -> None:
    choice = choose_nodes(NODES, 3, excluded, said, gate)

    assert choice.nodes == nodes
    if nodes is None:
        assert "3 nodes needed" in choice.why


@given(
    st.permutations(NODES),
    st.integers(1, 4),
    st.sets(st.sampled_from(NODES)),
    st.dictionaries(st.sampled_from(NODES), st.sampled_from(Fitness)),
    st.sampled_from([GateMode.PREFER, GateMode.REQUIRE]),
)
def test_no_unfit_or_excluded_node_is_ever_chosen(
    allocation: list[str], wanted: int, excluded: set[str], said: dict[str, Fitness], gate: GateMode
) -> None:
    nodes = choose_nodes(allocation, wanted, excluded, [NodeVerdict(*item) for item in said.items()], gate).nodes

    if nodes is not None:
        assert len(nodes) == wanted
        assert not set(nodes) & (excluded | {node for node, fitness in said.items() if fitness is UNFIT})
        assert list(nodes) == [node for node in allocation if node in nodes]


CRASH = AttemptResult(AttemptOutcome.CRASHED, frozenset(), 1, "rank 0 exited with 1")
ORDERED = AttemptResult(AttemptOutcome.ORDERED, frozenset({"n2"}), 91, "all saved")


def play(*results: AttemptResult, limits: RetryLimits) -> list[LaunchAction]:
    history, moves = AttemptHistory(), []
    for result in results:
        history = history.after(result)
        moves.append(decide_next_action(result, history, limits)[0])
    return moves


def test_crashes_in_a_row_stop_the_job_and_an_ordered_leave_forgives_them() -> None:
    moves = play(CRASH, CRASH, ORDERED, CRASH, CRASH, CRASH, limits=RetryLimits(20, 3))

    assert moves == [LaunchAction.START] * 5 + [LaunchAction.STOP]


def test_a_lost_node_neither_counts_as_a_crash_nor_forgives_one() -> None:
    lost = AttemptResult(AttemptOutcome.LOST, frozenset({"n2"}), 75, "lost n2")

    assert (
        play(CRASH, lost, CRASH, lost, lost, limits=RetryLimits(20, 2))
        == [LaunchAction.START] * 2 + [LaunchAction.STOP] * 3
    )
    assert AttemptHistory(crashes=2).after(lost, AttemptProgress(3)).crashes == 0


def test_restarts_are_bounded() -> None:
    assert play(ORDERED, ORDERED, ORDERED, limits=RetryLimits(2, 3)) == [
        LaunchAction.START,
        LaunchAction.START,
        LaunchAction.STOP,
    ]


def test_done_and_never_again_stop_at_once() -> None:
    for outcome in (AttemptOutcome.DONE, AttemptOutcome.NEVER_AGAIN):
        assert play(AttemptResult(outcome, frozenset(), 0, "why"), limits=RetryLimits()) == [LaunchAction.STOP]


def test_condemned_nodes_stay_excluded() -> None:
    history = AttemptHistory().after(ORDERED).after(CRASH).after(ORDERED._replace(condemned=frozenset({"n4"})))

    assert history.excluded == {"n2", "n4"}


def test_a_crash_after_progress_does_not_count() -> None:
    history = AttemptHistory()
    for step, crashes in [(3, 0), (3, 1), (2, 2), (4, 0), (-1, 1)]:
        history = history.after(CRASH, AttemptProgress(step))
        assert history.crashes == crashes
    assert history.step == 4
    assert history.after(CRASH, AttemptProgress(touched=True)).crashes == 0


@given(st.lists(st.integers(-1, 50), max_size=30), st.integers(1, 4))
def test_only_progress_keeps_a_crashing_job_alive(steps: list[int], most: int) -> None:
    """As long as it may start, fewer than `most` crashes in a row did not come further."""
    history, best, stuck = AttemptHistory(), -1, 0
    for step in steps:
        stuck = 0 if step > best else stuck + 1
        best = max(best, step)
        history = history.after(CRASH, AttemptProgress(step))
        assert (decide_next_action(CRASH, history, RetryLimits(100, most))[0] is LaunchAction.STOP) == (stuck >= most)


@given(st.integers(0, 10_000), st.floats(0, 100), st.floats(0, 1000))
def test_pauses_grow_up_to_their_cap(crashes: int, first: float, most: float) -> None:
    limits = RetryLimits(backoff_seconds=first, backoff_most_seconds=most)
    pause, next_one = (compute_backoff(AttemptHistory(crashes=count), limits) for count in (crashes, crashes + 1))

    assert 0 <= pause <= next_one <= most
    assert crashes or pause == 0


def test_pauses_double() -> None:
    assert [compute_backoff(AttemptHistory(crashes=n), RetryLimits()) for n in (0, 1, 2, 3, 7, 8, 99)] == [
        0,
        1,
        2,
        4,
        60,
        60,
        60,
    ]


@pytest.mark.parametrize(
    ("excluded", "nodes"), [((), ("n1", "n2", "n3")), (("n2", "n3"), ("n1", "n4")), (("n1", "n2", "n3"), None)]
)
def test_a_job_that_may_shrink_takes_what_is_left(excluded: tuple[str, ...], nodes: tuple[str, ...] | None) -> None:
    choice = choose_nodes(NODES, 3, excluded, [], GateMode.PREFER, least=2)

    assert choice.nodes == nodes
    assert ("2 instead of 3 nodes" in choice.why) == (nodes is not None and len(nodes) == 2)


@given(st.sets(st.sampled_from(NODES)), st.integers(1, 4), st.integers(1, 4))
def test_a_job_is_as_large_as_it_can_be(excluded: set[str], wanted: int, least: int) -> None:
    left = len(NODES) - len(excluded)
    nodes = choose_nodes(NODES, wanted, excluded, [], GateMode.PREFER, least=least).nodes

    if left >= min(wanted, least):
        assert nodes is not None
        assert len(nodes) == min(wanted, left)
    else:
        assert nodes is None


@pytest.mark.parametrize(
    ("gate", "preflight", "how", "both"),
    [
        (FIT, FIT, GateMode.PREFER, FIT),
        (FIT, UNKNOWN, GateMode.PREFER, UNKNOWN),
        (FIT, UNFIT, GateMode.PREFER, UNFIT),
        (UNFIT, FIT, GateMode.PREFER, UNFIT),
        (UNKNOWN, FIT, GateMode.PREFER, FIT),
        (UNKNOWN, FIT, GateMode.REQUIRE, UNKNOWN),
        (UNKNOWN, UNFIT, GateMode.REQUIRE, UNFIT),
    ],
)
def test_the_worse_of_two_verdicts_counts(gate: Fitness, preflight: Fitness, how: GateMode, both: Fitness) -> None:
    assert combine_verdicts(verdicts(n1=gate), verdicts(n1=preflight), how)[0].fitness is both
    assert combine_verdicts([], verdicts(n1=preflight), how)[0].fitness is preflight
    assert combine_verdicts(verdicts(n1=gate), [], how)[0].fitness is gate
