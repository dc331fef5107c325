"""The agreement under threads, delays, losses and deaths. `docs/agreement.md` says why it must hold."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthd.trainer.agreement import Agreement, AgreementMissedError, LocalStore
from healthd.trainer.page import MailboxOrder, Outcome

DEADLINE_S = 60.0


def order(name: str, *, expires_at: float = 1e9, cancelled: bool = False) -> MailboxOrder:
    return MailboxOrder(name, "checkpoint_then_eject", "test", ("n1",), expires_at, cancelled)


def chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - delays and fates, no secrets


class SlowStore(LocalStore):
    """A store whose answers take a moment, a random one: threads change places inside every operation."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = chance(seed)

    def add(self, key: str, amount: int, /) -> int:
        time.sleep(self._random.choice((0.0, 0.0, 1e-5, 1e-4)))
        value = super().add(key, amount)
        time.sleep(self._random.choice((0.0, 0.0, 1e-5)))
        return value


class Device:
    """The collectives of all ranks: step s is complete when every rank has entered it. A dead rank enters nothing more."""

    def __init__(self, world: int) -> None:
        self._world = world
        self._entered: dict[int, int] = defaultdict(int)
        self._changed = threading.Condition()
        self._dead = False

    def enter(self, step: int) -> None:
        with self._changed:
            self._entered[step] += 1
            self._changed.notify_all()

    def wait(self, step: int) -> bool:
        """Until step `step` is complete; False when it never will be."""
        if step < 0:
            return True
        with self._changed:
            done = self._changed.wait_for(lambda: self._entered[step] == self._world or self._dead, DEADLINE_S)
            assert done, "a collective hung"
            return self._entered[step] == self._world

    def die(self) -> None:
        with self._changed:
            self._dead = True
            self._changed.notify_all()


class Run:
    """Ranks as threads, each with its mailbox: what it finds at which of its boundaries."""

    def __init__(
        self, world: int, steps: int, mail: list[dict[int, list[MailboxOrder]]], *, seed: int, ahead: int = 0
    ) -> None:
        self.world, self.steps, self.mail, self.ahead = world, steps, mail, ahead
        self.store, self.device = SlowStore(seed), Device(world)
        self.acted: dict[str, dict[int, int]] = defaultdict(dict)
        self.dies_at: dict[int, int] = {}
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._guarded, args=(rank,)) for rank in range(world)]

    def go(self) -> Run:
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive(), "a rank hung"
        if self.errors:
            raise self.errors[0]
        return self

    def _guarded(self, rank: int) -> None:
        try:
            self._rank(rank)
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            self.errors.append(error)
            self.device.die()

    def _rank(self, rank: int) -> None:
        agreement = Agreement(self.store, self.world, "job/1")
        for step in range(self.steps):
            found = self.mail[rank].get(step, [])
            if self.dies_at.get(rank) == step:
                for each in found[:1]:  # it voted, perhaps decided, and is gone before the collective
                    agreement.at_boundary(step, float(step), each)
                self.device.die()
                return
            if (found or agreement.pending) and not self.device.wait(step - 1):
                return
            for each in [*found, None]:
                for due in agreement.at_boundary(step, float(step), each).due:
                    self.acted[due.id][rank] = step
            self.device.enter(step)
            if not self.device.wait(step - self.ahead):
                return

    def split(self) -> list[str]:
        """The orders that some ranks acted upon and others not, or not at the same step."""
        return [name for name, ranks in self.acted.items() if len(ranks) != self.world or len(set(ranks.values())) != 1]


def delivered(fates: random.Random, world: int, steps: int, orders: int) -> list[dict[int, list[MailboxOrder]]]:
    """Orders as life delivers them: late on some ranks, twice, lost, cancelled on the way, too old."""
    mail: list[dict[int, list[MailboxOrder]]] = [defaultdict(list) for _ in range(world)]
    for number in range(orders):
        begins = fates.randrange(steps)
        fate = fates.choice(("fine", "fine", "fine", "lost", "cancelled", "short"))
        expires_at = begins + (fates.randrange(4) if fate == "short" else 12.0)
        for rank in range(world):
            if fate == "lost" and fates.random() < 0.3:
                continue
            seen = begins + fates.choice((0, 0, 0, 1, 2, 5))
            mail[rank][seen].append(order(f"o{number}", expires_at=expires_at))
            if fates.random() < 0.1:
                mail[rank][seen + 1].append(order(f"o{number}", expires_at=expires_at))
            if fate == "cancelled" and fates.random() < 0.8:
                mail[rank][begins + fates.randrange(6)].append(order(f"o{number}", cancelled=True))
    return mail


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

    agreement = Agreement(Untouchable(), 2, "job/1")

    assert all(agreement.at_boundary(step, 0.0).due == () for step in range(100))


def test_an_order_one_rank_never_sees_is_dropped_at_its_expiry() -> None:
    store = LocalStore()
    agreement = Agreement(store, 2, "job/1")
    agreement.at_boundary(0, 0.0, order("a", expires_at=5.0))

    waiting = agreement.at_boundary(1, 5.0)
    dropped = agreement.at_boundary(2, 5.1)

    assert waiting.dropped == ()
    assert [(each.id, outcome) for each, outcome in dropped.dropped] == [("a", Outcome.EXPIRED)]
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

    assert [(each.id, outcome) for each, outcome in ruling.dropped] == [("a", Outcome.CANCELLED)]


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

    with pytest.raises(AgreementMissedError, match="agreed on step 5, this one is at step 8"):
        ahead.at_boundary(8, 0.0)
