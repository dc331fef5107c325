from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.launcher.decisions.crash_attribution import (
    blame_user,
    find_common_exit_code,
    list_doubtful_nodes,
    may_be_user_error,
)
from healthd.launcher.decisions.relaunch_policy import (
    AttemptHistory,
    AttemptOutcome,
    Fitness,
    LaunchAction,
    NodeVerdict,
    RankEnd,
    RetryLimits,
    decide_next_action,
    judge_attempt,
)

FIT, UNKNOWN, UNFIT = Fitness.FIT, Fitness.UNKNOWN, Fitness.UNFIT


def ends(*codes: int | None, killed: tuple[int, ...] = ()) -> list[RankEnd]:
    return [RankEnd(rank, f"n{rank}", code, rank in killed) for rank, code in enumerate(codes)]


@pytest.mark.parametrize(
    ("ranks", "code"),
    [
        (ends(1, 1, 1, 1), 1),
        (ends(2), 2),
        (ends(*[1] * 9, -9), 1),
        (ends(*[1] * 8, 2, 2), None),
        (ends(1, 1, 1, 0), None),
        (ends(-11, -11), None),
        (ends(137, 137), None),  # a shell says that a signal ended its child
        (ends(1, -9, -9, killed=(1, 2)), None),
        (ends(1, None), None),
        (ends(0, 0), None),
        (ends(92, 92), None),  # the guard's codes ask for another start
    ],
)
def test_ranks_that_end_alike_have_a_common_code(ranks: list[RankEnd], code: int | None) -> None:
    assert find_common_exit_code(ranks) == code


def test_a_common_early_crash_may_be_the_users() -> None:
    same, mixed = ends(1, 1), ends(1, -9)

    assert may_be_user_error(judge_attempt(same), same, 5.0, RetryLimits())
    assert not may_be_user_error(judge_attempt(same), same, 500.0, RetryLimits())
    assert not may_be_user_error(judge_attempt(same), same, 0.0, RetryLimits(user_error_seconds=0))
    assert not may_be_user_error(judge_attempt(mixed), mixed, 5.0, RetryLimits())


def test_a_user_error_stops_with_its_own_code() -> None:
    ranks = ends(*[3] * 19, 1)
    result = blame_user(judge_attempt(ranks), ranks)

    assert (result.outcome, result.code, result.condemned) == (AttemptOutcome.USER_ERROR, 3, frozenset())
    assert "19 of 20 ranks exited with 3" in result.why
    assert decide_next_action(result, AttemptHistory().after(result), RetryLimits())[0] is LaunchAction.STOP


fitness = st.sampled_from(Fitness)


@given(st.dictionaries(st.sampled_from("abcd"), fitness), st.dictionaries(st.sampled_from("abcd"), fitness))
def test_a_node_is_doubted_when_less_good_is_known_of_it(before: dict[str, Fitness], after: dict[str, Fitness]) -> None:
    order = [FIT, UNKNOWN, UNFIT]
    expected = [
        node for node in "abc" if order.index(after.get(node, UNKNOWN)) > order.index(before.get(node, UNKNOWN))
    ]

    assert (
        list_doubtful_nodes([NodeVerdict(*x) for x in before.items()], [NodeVerdict(*x) for x in after.items()], "abc")
        == expected
    )


codes = st.one_of(st.none(), st.sampled_from([0, 1, 2, 90, 91, 92, 93, 137, -9, -11]))


@given(st.lists(st.builds(RankEnd, st.integers(0, 9), st.sampled_from("abc"), codes, st.booleans()), min_size=1))
def test_no_ordered_leave_and_no_signal_is_ever_the_users(ranks: list[RankEnd]) -> None:
    result = judge_attempt(ranks)

    if may_be_user_error(result, ranks, 1.0, RetryLimits()):
        assert {end.code for end in ranks if end.code != result.code} <= {0, None, 1, 2, 137, -9, -11}
        assert blame_user(result, ranks).code in (1, 2)
        assert result.outcome is AttemptOutcome.CRASHED
