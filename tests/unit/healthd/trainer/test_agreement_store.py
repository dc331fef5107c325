"""The agreement where the store fails: words lost on the way there, on the way back, late; for a while, for good."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthd.trainer.agreement import Agreement, BoundaryDecision, LocalStore
from healthd.trainer.beacons.beacon_page import OrderOutcome
from healthd.trainer.store_caller import StoreCaller, StoreGoneError
from tests.unit.healthd.trainer.voting_ranks import Hurried, Run, chance, delivered, order


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ahead", [0, 3], ids=["host waits", "host runs ahead"])
def test_a_store_that_loses_words_splits_nothing_and_holds_up_nobody(seed: int, ahead: int) -> None:
    steps = 230
    run = Run(6, steps, delivered(chance(seed), 6, steps - 40, orders=100), seed=seed, ahead=ahead)
    run.unreliable = True
    run.go()

    assert (run.split(), run.left, run.waiting) == ([], set(), set())
    assert min(run.entered.values()) == steps - 1
    assert len(run.acted) > 10  # orders do come through


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    ahead=st.integers(0, 2),
    gone_at=st.dictionaries(st.integers(0, 3), st.integers(1, 25), min_size=1),
)
def test_no_rank_trains_on_alone_where_the_store_is_gone_for_good(
    seed: int, ahead: int, gone_at: dict[int, int]
) -> None:
    run = Run(4, 40, delivered(chance(seed), 4, 14, orders=3), seed=seed, ahead=ahead)
    run.unreliable, run.gone_at = True, gone_at
    run.go()

    assert run.trained_alone() == []
    assert run.left <= set(gone_at)
    assert run.left or (run.split(), run.waiting) == ([], set())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), victim=st.integers(0, 3), dies_at=st.integers(0, 9))
def test_a_rank_that_dies_while_the_store_fails_leaves_no_split(seed: int, victim: int, dies_at: int) -> None:
    run = Run(4, 40, delivered(chance(seed), 4, 6, orders=2), seed=seed)
    run.unreliable, run.dies_at[victim] = True, dies_at
    run.go()

    assert run.trained_alone() == []
    assert run.left == set()


class Scripted:
    """A way to a store on which some calls always fail, before or after they had their effect: vote, count, look, decide."""

    def __init__(self, store: LocalStore, *before: str, after: tuple[str, ...] = ()) -> None:
        self._store, self.before, self.after = store, before, after

    def add(self, key: str, amount: int, /) -> int:
        what = "vote" if amount else "count"
        self._fail(what, self.before)
        value = self._store.add(key, amount)
        self._fail(what, self.after)
        return value

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        what = "look" if desired == "0" else "decide"
        self._fail(what, self.before)
        value = self._store.compare_set(key, expected, desired)
        self._fail(what, self.after)
        return value

    def _fail(self, what: str, which: tuple[str, ...]) -> None:
        if what in which:
            raise ConnectionError(f"{what}: broken pipe")


def voter(store: LocalStore | Scripted) -> Agreement:
    return Agreement(store, 2, "job/1", Hurried())


def dropped(ruling: BoundaryDecision) -> list[tuple[str, OrderOutcome]]:
    return [(each.order.id, each.outcome) for each in ruling.dropped]


def test_a_lost_reply_to_the_last_vote_is_found_out_and_the_order_comes_through() -> None:
    store = LocalStore()
    first, last = voter(store), voter(Scripted(store, after=("vote",)))
    first.at_boundary(3, 0.0, order("a"))
    last.at_boundary(3, 0.0, order("a"))

    assert last.at_boundary(4, 0.0).agreed == ((order("a"), 5),)
    assert first.at_boundary(4, 0.0).due == ()
    assert [each.at_boundary(5, 0.0).due for each in (first, last)] == [(order("a"),)] * 2


def test_a_rank_whose_every_count_fails_still_learns_and_acts() -> None:
    store = LocalStore()
    first, last = voter(Scripted(store, "count", after=("vote",))), voter(store)
    for step in (3, 4):
        assert first.at_boundary(step, 0.0, order("a")) == ((), (), ())
    last.at_boundary(4, 0.0, order("a"))

    assert [each.at_boundary(5, 0.0).due for each in (first, last)] == [(order("a"),)] * 2


def test_a_vote_that_never_arrived_is_not_cast_again_and_the_order_expires() -> None:
    store = LocalStore()
    first, last = voter(store), voter(Scripted(store, "vote"))
    a = order("a", expires_at=9.0)
    first.at_boundary(3, 0.0, a)
    last.at_boundary(3, 0.0, a)

    assert all(each.at_boundary(step, float(step)) == ((), (), ()) for step in range(4, 10) for each in (first, last))
    assert [dropped(each.at_boundary(10, 10.0)) for each in (first, last)] == [[("a", OrderOutcome.EXPIRED)]] * 2


def test_who_cannot_write_the_decision_leaves_and_the_others_do_not_wait_for_ever() -> None:
    store = LocalStore()
    first, last = voter(store), voter(Scripted(store, "decide"))
    a = order("a", expires_at=9.0)
    first.at_boundary(3, 0.0, a)

    with pytest.raises(StoreGoneError, match=r"unreachable \(20 s\): ConnectionError: decide: broken pipe"):
        last.at_boundary(3, 0.0, a)

    assert last.pending
    assert first.at_boundary(4, 0.0) == ((), (), ())
    assert dropped(first.at_boundary(5, 9.5)) == [("a", OrderOutcome.EXPIRED)]
    assert not first.pending


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_rank_without_a_store_does_not_vote_and_trains_on(*, cancelled: bool) -> None:
    agreement = voter(Scripted(LocalStore(), "look", "decide"))

    ruling = agreement.at_boundary(1, 0.0, order("a", cancelled=cancelled))

    assert dropped(ruling) == [("a", OrderOutcome.CANCELLED if cancelled else OrderOutcome.FAILED)]
    assert ("unreachable" in ruling.dropped[0].why) is not cancelled
    assert not agreement.pending
    assert agreement.at_boundary(2, 0.0, order("a")) == ((), (), ())


def test_a_rank_that_has_voted_leaves_when_the_store_is_gone() -> None:
    way = Scripted(LocalStore())
    agreement = voter(way)
    agreement.at_boundary(1, 0.0, order("a"))
    way.before = ("look",)

    with pytest.raises(StoreGoneError, match="20 s"):
        agreement.at_boundary(2, 0.0)

    assert agreement.forget() == (order("a"),)
    assert not agreement.pending


def test_a_decision_that_is_older_than_this_ranks_vote_is_not_its_own() -> None:
    store = LocalStore()
    for each in (voter(store), voter(store)):
        each.at_boundary(3, 0.0, order("a"))

    ruling = voter(store).at_boundary(1, 0.0, order("a"))

    assert dropped(ruling) == [("a", OrderOutcome.FAILED)]
    assert "outlives an attempt" in ruling.dropped[0].why


def test_an_order_that_comes_twice_at_one_boundary_is_one_vote() -> None:
    agreement = voter(LocalStore())

    agreement.at_boundary(1, 0.0, order("a"), order("a"))

    assert agreement.at_boundary(2, 0.0) == ((), (), ())
    assert dropped(agreement.at_boundary(3, 0.0, order("a", cancelled=True))) == [("a", OrderOutcome.CANCELLED)]


def test_what_is_due_goes_before_new_orders() -> None:
    alone = Agreement(LocalStore(), 1, "job/1")
    alone.at_boundary(1, 0.0, order("a"))

    assert alone.at_boundary(2, 0.0, order("b")) == ((order("a"),), (), ())
    assert not alone.pending


def test_a_store_that_does_not_answer_is_left_behind() -> None:
    never = threading.Event()

    with pytest.raises(TimeoutError, match="no answer within"):
        StoreCaller().call_once(never.wait, 0.01)
    with pytest.raises(StoreGoneError, match=r"unreachable \(0.01 s\): TimeoutError: no answer"):
        StoreCaller().call_with_retries(never.wait, 0.01)
    never.set()


def test_patience_asks_until_it_hears() -> None:
    answers = iter([ConnectionError("one"), ConnectionError("two"), 7])

    def ask() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert StoreCaller(pause=lambda _: None).call_with_retries(ask, 60.0) == 7


def test_pytorchs_stores_answer_as_ours(tmp_path: Path) -> None:
    dist = pytest.importorskip("torch.distributed")
    stores = [LocalStore(), dist.HashStore(), dist.FileStore(f"{tmp_path}/store", 1)]
    stores += [dist.TCPStore("127.0.0.1", 0, 1, is_master=True), dist.PrefixStore("x", dist.HashStore())]
    for store in stores:
        said = [store.compare_set("k", *each) for each in (("", "0"), ("", "7"), ("0", "-1"), ("0", "7"), ("", "0"))]
        assert said == [b"0", b"0", b"-1", b"-1", b"-1"], store
        assert [store.add("n", amount) for amount in (1, 1, 0)] == [1, 2, 2], store
        assert store.compare_set("other", "", "7") == b"7", store


def test_two_ranks_agree_through_a_store_of_pytorch() -> None:
    dist = pytest.importorskip("torch.distributed")
    store = dist.PrefixStore("x", dist.TCPStore("127.0.0.1", 0, 1, is_master=True))
    first, last = Agreement(store, 2, "job/1"), Agreement(store, 2, "job/1")
    a = order("a")
    for each in (first, last):
        each.at_boundary(3, 0.0, a)

    assert [each.at_boundary(4, 0.0).due for each in (first, last)] == [(a,), (a,)]
