from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.launcher.plan import (
    Fitness,
    Gate,
    History,
    Limits,
    Move,
    NodeVerdict,
    Outcome,
    Progress,
    RankEnd,
    Result,
    backoff,
    choose,
    combine,
    judge,
    next_move,
)

NODES = ("n1", "n2", "n3", "n4")


def ends(*codes: int | None, killed: tuple[int, ...] = ()) -> list[RankEnd]:
    return [RankEnd(rank, NODES[rank], code, rank in killed) for rank, code in enumerate(codes)]


@pytest.mark.parametrize(
    ("ranks", "outcome", "condemned", "code"),
    [
        (ends(0, 0, 0), Outcome.DONE, set(), 0),
        (ends(91, 90, 91), Outcome.ORDERED, {"n2"}, 91),
        (ends(91, 91, 91), Outcome.ORDERED, set(), 91),
        (ends(92, 92, -9, killed=(2,)), Outcome.ORDERED, {"n3"}, 92),
        (ends(92, 1, 92), Outcome.ORDERED, set(), 92),
        (ends(92, None, 92, killed=(1,)), Outcome.ORDERED, {"n2"}, 92),
        (ends(93, 1, 91), Outcome.NEVER_AGAIN, set(), 93),
        (ends(0, 1, 0), Outcome.CRASHED, set(), 1),
        (ends(-9, 1, 1), Outcome.CRASHED, set(), 137),
        (ends(1, -9, -9, killed=(1, 2)), Outcome.CRASHED, set(), 1),
        (ends(None, 1, 1), Outcome.LOST, {"n1"}, 75),
        (ends(-9, -9, killed=(0, 1)), Outcome.CRASHED, set(), 137),
        (ends(0, -9, 0, killed=(1,)), Outcome.CRASHED, set(), 137),
    ],
)
def test_how_ranks_end_says_what_an_attempt_came_to(
    ranks: list[RankEnd], outcome: Outcome, condemned: set[str], code: int
) -> None:
    result = judge(ranks)

    assert (result.outcome, result.condemned, result.code) == (outcome, condemned, code)
    assert result.why


codes = st.one_of(st.none(), st.sampled_from([0, 1, 2, 90, 91, 92, 93, 137, -9, -11, -15]))


@given(st.lists(st.builds(RankEnd, st.integers(0, 9), st.sampled_from(NODES), codes, st.booleans()), min_size=1))
def test_any_ending_has_a_judgement(ranks: list[RankEnd]) -> None:
    result = judge(ranks)

    assert (result.outcome is Outcome.DONE) == all(end.code == 0 for end in ranks)
    assert (result.code == 0) == (result.outcome is Outcome.DONE)
    assert result.condemned <= {end.node for end in ranks}
    assert 0 <= result.code < 256


def verdicts(**said: Fitness) -> list[NodeVerdict]:
    return [NodeVerdict(node, fitness) for node, fitness in said.items()]


FIT, UNKNOWN, UNFIT = Fitness.FIT, Fitness.UNKNOWN, Fitness.UNFIT


@pytest.mark.parametrize(
    ("gate", "excluded", "said", "nodes"),
    [
        (Gate.PREFER, (), verdicts(n1=FIT, n2=FIT, n3=FIT, n4=FIT), ("n1", "n2", "n3")),
        (Gate.PREFER, (), [], ("n1", "n2", "n3")),
        (Gate.PREFER, (), verdicts(n1=UNKNOWN, n2=FIT, n3=FIT, n4=FIT), ("n2", "n3", "n4")),
        (Gate.PREFER, (), verdicts(n2=UNFIT, n4=FIT), ("n1", "n3", "n4")),
        (Gate.PREFER, ("n1",), verdicts(n2=UNFIT), None),
        (Gate.REQUIRE, (), verdicts(n1=FIT, n2=FIT), None),
        (Gate.REQUIRE, ("n2",), verdicts(n1=FIT, n3=FIT, n4=FIT), ("n1", "n3", "n4")),
        (Gate.OFF, ("n1",), verdicts(n2=UNFIT), ("n2", "n3", "n4")),
    ],
)
def test_fit_nodes_come_before_silent_ones_and_unfit_ones_never(
    gate: Gate, excluded: tuple[str, ...], said: list[NodeVerdict], nodes: tuple[str, ...] | None
) -> None:
    choice = choose(NODES, 3, excluded, said, gate)

    assert choice.nodes == nodes
    if nodes is None:
        assert "3 nodes needed" in choice.why


@given(
    st.permutations(NODES),
    st.integers(1, 4),
    st.sets(st.sampled_from(NODES)),
    st.dictionaries(st.sampled_from(NODES), st.sampled_from(Fitness)),
    st.sampled_from([Gate.PREFER, Gate.REQUIRE]),
)
def test_no_unfit_or_excluded_node_is_ever_chosen(
    allocation: list[str], wanted: int, excluded: set[str], said: dict[str, Fitness], gate: Gate
) -> None:
    nodes = choose(allocation, wanted, excluded, [NodeVerdict(*item) for item in said.items()], gate).nodes

    if nodes is not None:
        assert len(nodes) == wanted
        assert not set(nodes) & (excluded | {node for node, fitness in said.items() if fitness is UNFIT})
        assert list(nodes) == [node for node in allocation if node in nodes]


CRASH = Result(Outcome.CRASHED, frozenset(), 1, "rank 0 exited with 1")
ORDERED = Result(Outcome.ORDERED, frozenset({"n2"}), 91, "all saved")


def play(*results: Result, limits: Limits) -> list[Move]:
    history, moves = History(), []
    for result in results:
        history = history.after(result)
        moves.append(next_move(result, history, limits)[0])
    return moves


def test_crashes_in_a_row_stop_the_job_and_an_ordered_leave_forgives_them() -> None:
    moves = play(CRASH, CRASH, ORDERED, CRASH, CRASH, CRASH, limits=Limits(20, 3))

    assert moves == [Move.START] * 5 + [Move.STOP]


def test_a_lost_node_neither_counts_as_a_crash_nor_forgives_one() -> None:
    lost = Result(Outcome.LOST, frozenset({"n2"}), 75, "lost n2")

    assert play(CRASH, lost, CRASH, lost, lost, limits=Limits(20, 2)) == [Move.START] * 2 + [Move.STOP] * 3
    assert History(crashes=2).after(lost, Progress(3)).crashes == 0


def test_restarts_are_bounded() -> None:
    assert play(ORDERED, ORDERED, ORDERED, limits=Limits(2, 3)) == [Move.START, Move.START, Move.STOP]


def test_done_and_never_again_stop_at_once() -> None:
    for outcome in (Outcome.DONE, Outcome.NEVER_AGAIN):
        assert play(Result(outcome, frozenset(), 0, "why"), limits=Limits()) == [Move.STOP]


def test_condemned_nodes_stay_excluded() -> None:
    history = History().after(ORDERED).after(CRASH).after(ORDERED._replace(condemned=frozenset({"n4"})))

    assert history.excluded == {"n2", "n4"}


def test_a_crash_after_progress_does_not_count() -> None:
    history = History()
    for step, crashes in [(3, 0), (3, 1), (2, 2), (4, 0), (-1, 1)]:
        history = history.after(CRASH, Progress(step))
        assert history.crashes == crashes
    assert history.step == 4
    assert history.after(CRASH, Progress(touched=True)).crashes == 0


@given(st.lists(st.integers(-1, 50), max_size=30), st.integers(1, 4))
def test_only_progress_keeps_a_crashing_job_alive(steps: list[int], most: int) -> None:
    """As long as it may start, fewer than `most` crashes in a row did not come further."""
    history, best, stuck = History(), -1, 0
    for step in steps:
        stuck = 0 if step > best else stuck + 1
        best = max(best, step)
        history = history.after(CRASH, Progress(step))
        assert (next_move(CRASH, history, Limits(100, most))[0] is Move.STOP) == (stuck >= most)


@given(st.integers(0, 10_000), st.floats(0, 100), st.floats(0, 1000))
def test_pauses_grow_up_to_their_cap(crashes: int, first: float, most: float) -> None:
    limits = Limits(backoff_seconds=first, backoff_most_seconds=most)
    pause, next_one = (backoff(History(crashes=count), limits) for count in (crashes, crashes + 1))

    assert 0 <= pause <= next_one <= most
    assert crashes or pause == 0


def test_pauses_double() -> None:
    assert [backoff(History(crashes=n), Limits()) for n in (0, 1, 2, 3, 7, 8, 99)] == [0, 1, 2, 4, 60, 60, 60]


@pytest.mark.parametrize(
    ("excluded", "nodes"), [((), ("n1", "n2", "n3")), (("n2", "n3"), ("n1", "n4")), (("n1", "n2", "n3"), None)]
)
def test_a_job_that_may_shrink_takes_what_is_left(excluded: tuple[str, ...], nodes: tuple[str, ...] | None) -> None:
    choice = choose(NODES, 3, excluded, [], Gate.PREFER, least=2)

    assert choice.nodes == nodes
    assert ("2 instead of 3 nodes" in choice.why) == (nodes is not None and len(nodes) == 2)


@given(st.sets(st.sampled_from(NODES)), st.integers(1, 4), st.integers(1, 4))
def test_a_job_is_as_large_as_it_can_be(excluded: set[str], wanted: int, least: int) -> None:
    left = len(NODES) - len(excluded)
    nodes = choose(NODES, wanted, excluded, [], Gate.PREFER, least=least).nodes

    if left >= min(wanted, least):
        assert nodes is not None
        assert len(nodes) == min(wanted, left)
    else:
        assert nodes is None


@pytest.mark.parametrize(
    ("gate", "preflight", "how", "both"),
    [
        (FIT, FIT, Gate.PREFER, FIT),
        (FIT, UNKNOWN, Gate.PREFER, UNKNOWN),
        (FIT, UNFIT, Gate.PREFER, UNFIT),
        (UNFIT, FIT, Gate.PREFER, UNFIT),
        (UNKNOWN, FIT, Gate.PREFER, FIT),
        (UNKNOWN, FIT, Gate.REQUIRE, UNKNOWN),
        (UNKNOWN, UNFIT, Gate.REQUIRE, UNFIT),
    ],
)
def test_the_worse_of_two_verdicts_counts(gate: Fitness, preflight: Fitness, how: Gate, both: Fitness) -> None:
    assert combine(verdicts(n1=gate), verdicts(n1=preflight), how)[0].fitness is both
    assert combine([], verdicts(n1=preflight), how)[0].fitness is preflight
    assert combine(verdicts(n1=gate), [], how)[0].fitness is gate
