"""Guards that agree while something fails: a word from the store, all of it, the device; and steps that are numbered oddly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from healthd.trainer.agreement import LocalStore, Store
from healthd.trainer.beacons.beacon import Beacon, MailboxOrder, RankPlacement, read_page
from healthd.trainer.beacons.beacon_page import Acknowledgement, OrderOutcome
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.exit_codes import ExitCode, Leave
from healthd.trainer.framework import Framework, NoFramework
from healthd.trainer.guard import Guard
from vocabulary.clock import ManualClock

pytestmark = pytest.mark.usefixtures("step_writer")

ORDER = MailboxOrder("o1", "checkpoint_then_eject", "row remap pending", (), 2e9)
RANKS = 3
KINDS = {
    "checkpoint_then_eject": ExitCode.RELAUNCH,
    "checkpoint_then_stop": ExitCode.NEVER_AGAIN,
    "revert": ExitCode.RELAUNCH,
}


class Flaky:
    """One rank's way to the store, on which the calls named fail: once, or from then on."""

    def __init__(self, store: LocalStore, fails: str) -> None:
        self._store, self._fails, self._gone = store, fails, False

    def add(self, key: str, amount: int, /) -> int:
        self._check()
        value = self._store.add(key, amount)
        if amount and self._hit("lost reply"):
            raise ConnectionError("the reply is lost, the vote is counted")
        self._gone = amount == 1 and self._fails == "gone after the vote"
        return value

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        self._check()
        if self._store.add(f"{key}/looks", 1) == 2 and self._hit("one look"):
            raise ConnectionError("reset by peer")
        return self._store.compare_set(key, expected, desired)

    def _hit(self, what: str) -> bool:
        hit = self._fails == what
        self._fails = "" if hit else self._fails
        return hit

    def _check(self) -> None:
        if self._gone:
            raise ConnectionError("broken pipe")


class Sick(NoFramework):
    """A GPU that fails from the given look on."""

    def __init__(self, after: int) -> None:
        self._left = after

    def synchronize(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise RuntimeError("CUDA error: unspecified launch failure")


class Job:
    """Ranks in one process, one after the other at each step: what each does at which step."""

    def __init__(self, directory: Path, stores: list[Store], framework: Framework | None = None) -> None:
        self.clock = ManualClock()
        places = [RankPlacement("j", 1, rank, len(stores), node="n1") for rank in range(len(stores))]
        self.beacons = [Beacon.create(str(directory), place, self.clock) for place in places]
        self.guards = [
            Guard(place, beacon, store, framework=framework or NoFramework(), clock=self.clock, termination_seconds=0.0)
            for place, beacon, store in zip(places, self.beacons, stores, strict=True)
        ]
        self.saved: dict[int, int] = {}
        self.left: dict[int, tuple[int, object]] = {}

    def train(self, steps: Iterable[int], order: MailboxOrder, *, ordered_at: int = 3) -> None:
        for number, step in enumerate(steps):
            if number == ordered_at:
                for beacon in self.beacons:
                    post_order(beacon.path, order)
            for rank, guard in enumerate(self.guards):
                try:
                    with guard.step(step) as s:
                        if s.checkpoint_due:
                            self.saved[rank] = step
                            s.saved("/ckpt")
                except Leave as leave:
                    self.left[rank] = step, leave.code
            if self.left:
                return

    def answer(self, rank: int) -> Acknowledgement:
        answer = read_page(self.beacons[rank].path).acknowledgement
        assert answer is not None
        return answer


MakeJob = Callable[..., Job]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeJob]:
    monkeypatch.setattr("healthd.trainer.process_exit.ExitGuard.leave_within", lambda *_: None)
    tmp_path.chmod(0o700)
    jobs: list[Job] = []

    def make(fails: str = "", framework: Framework | None = None, ranks: int = RANKS) -> Job:
        store = LocalStore()
        stores: list[Store] = [Flaky(store, fails if rank == 1 else "") for rank in range(ranks)]
        jobs.append(Job(tmp_path, stores, framework))
        return jobs[-1]

    yield make
    for each in jobs:
        for beacon in each.beacons:
            beacon.close()


@pytest.mark.parametrize("fails", ["one look", "lost reply"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_whose_store_fails_once_acts_with_the_others(job: MakeJob, fails: str, kind: str) -> None:
    ours = job(fails)
    gone_back: list[int] = []
    for guard in ours.guards:
        guard.on_revert(gone_back.append)

    ours.train(range(12), ORDER._replace(kind=kind, before_step=2))

    assert len(ours.left) == RANKS
    assert len({step for step, _ in ours.left.values()}) == 1
    assert {code for _, code in ours.left.values()} == {KINDS[kind]}
    assert len(ours.saved) == (0 if kind == "revert" else RANKS)
    assert gone_back == ([2] * RANKS if kind == "revert" else [])


def test_a_rank_that_voted_and_lost_its_store_leaves_and_does_not_train_on(
    job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("healthd.trainer.agreement.WORD_SECONDS", 0.1)
    ours = job("gone after the vote")

    ours.train(range(12), ORDER)

    assert ours.left[1] == (4, ExitCode.ABORTED)
    assert 1 not in ours.saved
    answer = ours.answer(1)
    assert (answer.outcome, answer.agreed_step) == (OrderOutcome.FAILED, -1)
    assert "the ranks' store is unreachable (0.1 s): ConnectionError: broken pipe" in answer.detail


@pytest.mark.parametrize("steps", [range(0, 1000, 10), [0, 1, 2, 3, 0, 1, 2, 3], [5] * 9, range(90, 50, -3)], ids=str)
def test_steps_may_be_numbered_as_the_loop_likes(job: MakeJob, steps: Iterable[int]) -> None:
    ours = job()
    acted = list(steps)[4]

    ours.train(steps, ORDER)

    assert ours.left == dict.fromkeys(range(RANKS), (acted, ExitCode.RELAUNCH))
    assert [ours.answer(rank).agreed_step for rank in range(RANKS)] == [acted] * RANKS


def test_a_device_that_cannot_be_waited_for_does_not_vote(job: MakeJob) -> None:
    ours = job(framework=Sick(after=0))

    ours.train(range(8), ORDER)

    assert (ours.left, ours.saved) == ({}, {})
    assert ours.answer(0).outcome is OrderOutcome.FAILED
    assert "CUDA error" in ours.answer(0).detail


def test_a_device_that_fails_after_the_vote_ends_its_rank(job: MakeJob) -> None:
    ours = job(framework=Sick(after=3))

    ours.train(range(8), ORDER)

    assert set(ours.left.values()) == {(4, ExitCode.ABORTED)}
    assert ours.saved == {}
    assert "CUDA error" in ours.answer(0).detail
