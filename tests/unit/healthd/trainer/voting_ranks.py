"""Ranks as threads that vote, for the agreement's tests: stores that dawdle or fail, hosts ahead of their devices, deaths."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from healthd.trainer.agreement import Agreement, LocalStore, Store
from healthd.trainer.beacons.beacon_page import MailboxOrder
from healthd.trainer.store_caller import StoreCaller, StoreGoneError

DEADLINE_S = 60.0

Answer = TypeVar("Answer")


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

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        time.sleep(self._random.choice((0.0, 0.0, 1e-5, 1e-4)))
        value = super().compare_set(key, expected, desired)
        time.sleep(self._random.choice((0.0, 0.0, 1e-5)))
        return value


class Unreliable:
    """One rank's way to the store: words are lost on the way there or back, or arrive late; for a while, or for good."""

    def __init__(self, store: LocalStore, fates: random.Random, late: list[Callable[[], object]], gone_at: int) -> None:
        self._store, self._fates, self._late, self._gone_at = store, fates, late, gone_at
        self._calls = self._out_until = 0

    def add(self, key: str, amount: int, /) -> int:
        return self._pass_on(lambda: self._store.add(key, amount))

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        return self._pass_on(lambda: self._store.compare_set(key, expected, desired))

    def _pass_on(self, deed: Callable[[], Answer]) -> Answer:
        self._calls += 1
        while self._late and self._fates.random() < 0.5:
            try:
                self._late.pop()()
            except IndexError:
                break  # another rank's call brought it
        if self._calls > self._gone_at or self._calls < self._out_until:
            raise ConnectionError("broken pipe")
        fate = self._fates.random()
        if self._calls == self._gone_at:
            fate *= 0.15  # the last word is lost on the way there, or on the way back
        if fate < 0.05:
            self._out_until = self._calls + self._fates.randrange(12)
            raise ConnectionError("never arrived")
        if fate < 0.1:
            self._late.append(deed)
            raise TimeoutError("arrives later")
        answer = deed()
        if fate < 0.15:
            raise ConnectionError("the reply is lost")
        return answer


class Hurried(StoreCaller):
    """Patience whose seconds pass as it pauses, so that no test depends on how long anything takes."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(lambda: self._now, self._skip)

    def _skip(self, seconds: float) -> None:
        self._now += seconds
        time.sleep(0.0)

    def call_once(self, ask: Callable[[], Answer], seconds: float) -> Answer:
        assert seconds > 0
        return ask()


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
        self.seed = seed
        self.store, self.device = SlowStore(seed), Device(world)
        self.acted: dict[str, dict[int, int]] = defaultdict(dict)
        self.entered = dict.fromkeys(range(world), -1)
        self.left: set[int] = set()
        self.waiting: set[int] = set()
        self._late: list[Callable[[], object]] = []
        self.unreliable = False
        self.gone_at: dict[int, int] = {}
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
        agreement = self._agreement(rank)
        for step in range(self.steps):
            found = self.mail[rank].get(step, [])
            if self.dies_at.get(rank) == step:
                agreement.at_boundary(
                    step, float(step), *found
                )  # it voted, perhaps decided: gone before the collective
                self.device.die()
                return
            if (found or agreement.pending) and not self.device.wait(step - 1):
                return
            try:
                ruling = agreement.at_boundary(step, float(step), *found)
            except StoreGoneError:
                self.left.add(rank)
                self.device.die()
                return
            for due in ruling.due:
                self.acted[due.id][rank] = step
            self.entered[rank] = step
            self.device.enter(step)
            if not self.device.wait(step - self.ahead):
                return
        if agreement.pending:
            self.waiting.add(rank)

    def _agreement(self, rank: int) -> Agreement:
        store: Store = self.store
        if self.unreliable:
            fates = chance(self.seed * 1000 + rank)
            store = Unreliable(self.store, fates, self._late, self.gone_at.get(rank, 10**9))
        return Agreement(store, self.world, "job/1", Hurried() if self.unreliable else None)

    def split(self) -> list[str]:
        """The orders that some ranks acted upon and others not, or not at the same step."""
        return [name for name, ranks in self.acted.items() if len(ranks) != self.world or len(set(ranks.values())) != 1]

    def trained_alone(self) -> list[str]:
        """The orders on which ranks acted at different steps, or where a rank entered the step of the others without acting."""
        wrong = []
        for name, ranks in self.acted.items():
            step = min(ranks.values())
            others = [rank for rank in range(self.world) if rank not in ranks]
            if set(ranks.values()) != {step} or any(self.entered[rank] >= step for rank in others):
                wrong.append(name)
        return wrong


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
