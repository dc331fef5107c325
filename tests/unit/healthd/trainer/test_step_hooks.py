"""A guard whose steps are opened and closed by calls, as callbacks of other people's loops do it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.trainer.adapters.step_hooks import StepHooks
from healthd.trainer.agreement import LocalStore
from healthd.trainer.beacons.beacon import Beacon, RankPlacement, read_page
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.beacon_page import MailboxOrder, OrderOutcome, Phase
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.exit_codes import ExitCode, Leave
from healthd.trainer.framework import NoFramework
from healthd.trainer.guard import GRACEFUL, Guard

pytestmark = pytest.mark.usefixtures("step_writer")

PLACE = RankPlacement("job", 0, 0, 1, node="here")


@pytest.fixture
def beacon(tmp_path: Path) -> Iterator[Beacon]:
    prepare_directory(str(tmp_path / "beacons"))
    made = Beacon.create(str(tmp_path / "beacons"), PLACE)
    yield made
    made.close()


@pytest.fixture
def hooks(beacon: Beacon, monkeypatch: pytest.MonkeyPatch) -> Iterator[StepHooks]:
    # A guard that leaves starts a timer that would end this test process, and its exit handler would set its code.
    monkeypatch.setattr("healthd.trainer.process_exit.ExitGuard.leave_within", lambda *_: None)
    guard = Guard(PLACE, beacon, LocalStore(), framework=NoFramework(), termination_seconds=0)
    hooks = StepHooks(guard)
    yield hooks
    guard._stop.set()
    for thread in threading.enumerate():
        if thread.name == "healthd-guard":
            thread.join()


def order(beacon: Beacon, *condemned: str) -> None:
    post_order(beacon.path, MailboxOrder("o1", GRACEFUL, "a test", condemned, time.time() + 60))


def test_without_an_order_steps_go_by(hooks: StepHooks, beacon: Beacon) -> None:
    for step in range(3):
        hooks.begin(step)
        assert hooks.inside
        assert not hooks.end()
        assert not hooks.inside
    hooks.finish()
    assert read_page(beacon.path).state.phase == Phase.DONE
    assert read_page(beacon.path).state.completed == 3


def test_a_step_that_is_due_stays_open_until_saved(hooks: StepHooks, beacon: Beacon) -> None:
    order(beacon, "here")
    hooks.begin(0)
    assert not hooks.end()
    hooks.begin(1)
    assert hooks.end()
    assert hooks.inside
    with pytest.raises(Leave) as left:
        hooks.saved("/checkpoint")
    assert left.value.code == ExitCode.CONDEMNED
    hooks.finish(left.value)
    answer = read_page(beacon.path).acknowledgement
    assert answer is not None
    assert (answer.outcome, answer.agreed_step, answer.checkpoint) == (OrderOutcome.LEFT, 1, "/checkpoint")


@pytest.mark.parametrize("way", ["failed", "finish", "begin"])
def test_a_due_step_that_was_not_saved_leaves_without_a_checkpoint(hooks: StepHooks, beacon: Beacon, way: str) -> None:
    order(beacon)
    hooks.begin(0)
    hooks.end()
    hooks.begin(1)
    with pytest.raises(Leave) as left:
        {
            "failed": lambda: hooks.failed(OSError("disk full")),
            "finish": hooks.finish,
            "begin": lambda: hooks.begin(2),
        }[way]()
    assert left.value.code == ExitCode.ABORTED
    answer = read_page(beacon.path).acknowledgement
    assert answer is not None
    assert answer.outcome is OrderOutcome.FAILED


def test_an_error_in_a_step_is_the_frameworks_own(hooks: StepHooks) -> None:
    hooks.begin(0)
    hooks.failed(ValueError("theirs"))
    assert not hooks.inside
    hooks.finish(ValueError("theirs"))


def test_a_checkpoint_that_was_not_due_changes_nothing(hooks: StepHooks) -> None:
    hooks.begin(0)
    hooks.saved("/periodic")
    assert not hooks.inside
    hooks.saved("/between steps")
    hooks.finish()
