from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.launcher.decisions.exit_verification import OBEYED, verify_ordered_leave
from healthd.launcher.decisions.relaunch_policy import AttemptOutcome as Came
from healthd.launcher.decisions.relaunch_policy import RankEnd, judge_attempt
from healthd.launcher.rank_pages import RankPage
from healthd.trainer.beacons.beacon_page import OrderOutcome


def ends(*codes: int | None, killed: tuple[int, ...] = ()) -> list[RankEnd]:
    return [RankEnd(rank, f"n{rank}", code, rank in killed) for rank, code in enumerate(codes)]


def page(rank: int, outcome: str = "", *, condemned: bool = False) -> RankPage:
    return RankPage(rank, f"n{rank}", 7, outcome=outcome, condemned=condemned)


@pytest.mark.parametrize(
    ("ranks", "pages", "came", "condemned", "code"),
    [
        (ends(91, 90), [page(0, "left"), page(1, "left", condemned=True)], Came.ORDERED, {"n1"}, 91),
        (ends(91, 90), [page(0, "left"), page(1, "left")], Came.ORDERED, set(), 91),
        (ends(91, 90), [page(0, "left")], Came.ORDERED, {"n1"}, 91),  # the condemned node does not answer any more
        (ends(92, 92), [page(0, "aborted"), page(1, "aborted", condemned=True)], Came.ORDERED, {"n1"}, 92),
        (ends(92, -9, killed=(1,)), [page(0, "aborted"), page(1, condemned=True)], Came.ORDERED, {"n1"}, 92),
        (ends(91, 1), [page(0, "saved")], Came.ORDERED, set(), 91),
        (ends(91, 90), [], Came.CRASHED, set(), 1),
        (ends(92, 92), [page(0, "failed"), page(1, "failed", condemned=True)], Came.CRASHED, set(), 1),
        (ends(90, 90), [page(0, "expired", condemned=True), page(1, "cancelled")], Came.CRASHED, set(), 1),
        (ends(0, 92), [page(0), page(1)], Came.CRASHED, set(), 1),
        (ends(92, -9, killed=(1,)), [], Came.CRASHED, set(), 1),
        (ends(92, None), [], Came.LOST, {"n1"}, 75),
        (ends(0, 0), [page(0, "left")], Came.DONE, set(), 0),
        (ends(93, 92), [], Came.NEVER_AGAIN, set(), 93),
    ],
)
def test_only_an_obeyed_order_makes_a_leave_ordered(
    ranks: list[RankEnd], pages: list[RankPage], came: Came, condemned: set[str], code: int
) -> None:
    result = verify_ordered_leave(judge_attempt(ranks), ranks, pages)

    assert (result.outcome, result.condemned, result.code) == (came, condemned, code)


def test_what_the_launcher_asked_for_needs_no_page() -> None:
    ranks = ends(91, 91)

    assert verify_ordered_leave(judge_attempt(ranks), ranks, [], asked=True).outcome is Came.ORDERED


codes = st.one_of(st.none(), st.sampled_from([0, 1, 90, 91, 92, 93, 137, -9]))
nodes = st.sampled_from(["n0", "n1", "n2"])
rank_ends = st.lists(st.builds(RankEnd, st.integers(0, 9), nodes, codes, st.booleans()), min_size=1)
rank_pages = st.lists(
    st.builds(
        RankPage,
        st.integers(0, 9),
        nodes,
        st.just(3),
        outcome=st.sampled_from(["", *OrderOutcome]),
        condemned=st.booleans(),
    )
)


@given(rank_ends, rank_pages)
def test_without_obedience_no_node_is_left_out_for_a_code(ranks: list[RankEnd], pages: list[RankPage]) -> None:
    claimed, result = judge_attempt(ranks), verify_ordered_leave(judge_attempt(ranks), ranks, pages)

    assert (result.outcome is Came.ORDERED) <= (claimed.outcome is Came.ORDERED)
    assert (result.outcome is Came.DONE) == (claimed.outcome is Came.DONE)
    if not any(page.outcome in OBEYED for page in pages):
        assert result.outcome is not Came.ORDERED
        assert result.condemned <= {end.node for end in ranks if end.code is None}
        assert result.outcome is not Came.CRASHED or result.code not in (90, 91, 92) or claimed is result
