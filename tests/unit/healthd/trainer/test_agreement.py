"""The agreement under threads, delays, losses and deaths. `docs/internals/agreement.md` says why it must hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthd.trainer.agreement import Agreement, AgreementMissedError, LocalStore
from healthd.trainer.beacons.beacon_page import OrderOutcome
from tests.unit.healthd.trainer.voting_ranks import Run, chance, delivered, order


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ahead", [0, 3], ids=["host waits", "host runs ahead"])
def test_eight_ranks_and_many_orders_never_split(seed: int, ahead: int) -> None:
    steps = 260
    mail = delivered(chance(seed), 8, steps - 30, orders=150)

    run = Run(8, steps, mail, seed=seed, ahead=ahead).go()

    assert run.split() == []
    assert len(run.acted) > 40  # orders do come through


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), world=st.integers(1, 5), ahead=st.integers(0, 2))
def test_any_delivery_never_splits(seed: int, world: int, ahead: int) -> None:
    run = Run(world, 24, delivered(chance(seed), world, 12, orders=3), seed=seed, ahead=ahead).go()

    assert run.split() == []


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), victim=st.integers(0, 3), dies_at=st.integers(0, 8))
def test_a_rank_that_dies_leaves_no_split_among_the_others(seed: int, victim: int, dies_at: int) -> None:
    run = Run(4, 12, delivered(chance(seed), 4, 5, orders=2), seed=seed)
    run.dies_at[victim] = dies_at
    run.go()

    for name, ranks in run.acted.items():
        survivors = {rank: step for rank, step in ranks.items() if rank != victim}
        assert not survivors or (len(survivors) == 3 and len(set(survivors.values())) == 1), name


def test_all_ranks_act_one_step_after_the_last_vote() -> None:
    mail = [{2: [order("a")]}, {5: [order("a")]}, {3: [order("a")]}]

    assert Run(3, 10, mail, seed=0).go().acted == {"a": {0: 6, 1: 6, 2: 6}}


def test_without_an_order_nothing_reaches_the_store() -> None:
    class Untouchable:
        def add(self, key: str, amount: int, /) -> int:
            raise AssertionError(f"{key} was touched ({amount})")

        def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
            raise AssertionError(f"{key} was touched ({expected}, {desired})")

    agreement = Agreement(Untouchable(), 2, "job/1")

    assert all(agreement.at_boundary(step, 0.0).due == () for step in range(100))


def test_an_order_one_rank_never_sees_is_dropped_at_its_expiry() -> None:
    store = LocalStore()
    agreement = Agreement(store, 2, "job/1")
    agreement.at_boundary(0, 0.0, order("a", expires_at=5.0))

    waiting = agreement.at_boundary(1, 5.0)
    dropped = agreement.at_boundary(2, 5.1)

    assert waiting.dropped == ()
    assert [(each.id, outcome) for each, outcome, _ in dropped.dropped] == [("a", OrderOutcome.EXPIRED)]
    assert not agreement.pending
    assert (
        Agreement(store, 2, "job/1").at_boundary(3, 0.0, order("a")).due == ()
    )  # the latecomer's vote changes nothing


def test_a_cancellation_after_the_last_vote_comes_too_late() -> None:
    store = LocalStore()
    first, second = Agreement(store, 2, "job/1"), Agreement(store, 2, "job/1")
    first.at_boundary(0, 0.0, order("a"))
    second.at_boundary(0, 0.0, order("a"))

    first.at_boundary(0, 0.0, order("a", cancelled=True))

    assert [each.id for each in first.at_boundary(1, 0.0).due] == ["a"]
    assert [each.id for each in second.at_boundary(1, 0.0).due] == ["a"]


def test_a_cancelled_order_is_over_for_the_ranks_that_did_not_hear_of_it() -> None:
    store = LocalStore()
    first, second = Agreement(store, 2, "job/1"), Agreement(store, 2, "job/1")
    first.at_boundary(0, 0.0, order("a"))

    second.at_boundary(0, 0.0, order("a", cancelled=True))
    ruling = first.at_boundary(1, 0.0)

    assert [(each.id, outcome) for each, outcome, _ in ruling.dropped] == [("a", OrderOutcome.CANCELLED)]


def test_another_attempt_of_the_job_votes_afresh() -> None:
    store = LocalStore()
    Agreement(store, 2, "job/1").at_boundary(0, 0.0, order("a"))

    again = Agreement(store, 2, "job/2")
    again.at_boundary(0, 0.0, order("a"))

    assert again.at_boundary(1, 0.0).due == ()
    assert again.pending


def test_a_step_agreed_behind_us_is_an_error_that_says_what_is_missing() -> None:
    store = LocalStore()
    ahead, last = Agreement(store, 2, "job/1"), Agreement(store, 2, "job/1")
    ahead.at_boundary(7, 0.0, order("a"))
    last.at_boundary(4, 0.0, order("a"))

    with pytest.raises(AgreementMissedError, match="agreed on boundary 5, but this one is already at 8"):
        ahead.at_boundary(8, 0.0)
