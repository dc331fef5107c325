"""Saving as often as pays: what makes a step save, how it is saved, and what an abort still brings to an end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from healthd.trainer.adapters.pytorch_checkpoint_schedule import PacedCheckpoints, StepCopies
from healthd.trainer.adapters.pytorch_job import guarded_job, run_id
from healthd.trainer.adapters.pytorch_peer_copies import PeerCopies
from healthd.trainer.adapters.pytorch_state import TrainingState
from healthd.trainer.agreement import LocalStore
from healthd.trainer.beacons.beacon import Beacon, RankPlacement, read_page
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.beacon_page import MailboxOrder
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError
from healthd.trainer.checkpoint_storage.copy_pace import COPY_STEPS, choose_copy_pace
from healthd.trainer.exit_codes import ExitCode, Leave
from healthd.trainer.framework import NoFramework
from healthd.trainer.guard import GRACEFUL, Guard
from healthd.trainer.interval import CheckpointInterval
from healthd.trainer.rendezvous_client import ADDRESS, MEMBER, RendezvousClient

pytestmark = pytest.mark.torch
PLACE = RankPlacement("job", 0, 0, 1, node="here")
DEADLINE_S = 60.0
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "HEALTHD_BEACON_DIR", "HEALTHD_JOB")


def guard_of(beacon: Beacon) -> Guard:
    return Guard(PLACE, beacon, LocalStore(), framework=NoFramework(), termination_seconds=0)


def paced(guard: Guard, root: Path, steps: int) -> PacedCheckpoints:
    model = nn.Linear(4, 4)
    state = TrainingState(model, torch.optim.SGD(model.parameters(), lr=0.1))
    interval = CheckpointInterval.from_env(environ={"HEALTHD_CHECKPOINT_STEPS": str(steps)})
    return PacedCheckpoints(guard, interval, root, state, keep=100)


def steps_in(root: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in root.glob("step-*"))


@pytest.mark.usefixtures("group")
def test_the_interval_and_another_reason_save_behind_trainings_back(beacon: Beacon, tmp_path: Path) -> None:
    with guard_of(beacon) as guard, paced(guard, tmp_path / "saved", 4) as checkpoints:
        for step in range(11):
            with guard.step(step) as s:
                checkpoints.save_if_due(step, s, also=step == 9)
        assert checkpoints.last is not None
        assert checkpoints.last.stall_seconds < checkpoints.last.seconds  # not waited for

    assert steps_in(tmp_path / "saved") == [3, 7, 9]
    told = [record.step for record in read_page(beacon.path).steps() if "checkpoint" in record.sections]
    assert told == [3, 7, 9]


@pytest.mark.usefixtures("group")
def test_an_order_saves_in_its_own_step_and_waits_for_it(beacon: Beacon, tmp_path: Path) -> None:
    def train() -> None:
        with guard_of(beacon) as guard, paced(guard, tmp_path / "saved", 1000) as checkpoints:
            for step in range(10):
                if step == 2:
                    post_order(beacon.path, MailboxOrder("o1", GRACEFUL, "a test", ("here",), 2e9))
                with guard.step(step) as s:
                    checkpoints.save_if_due(step, s)

    with pytest.raises(Leave) as left:
        train()

    assert left.value.code == ExitCode.CONDEMNED
    answer = read_page(beacon.path).acknowledgement
    assert answer is not None
    assert answer.checkpoint == str(tmp_path / "saved" / f"step-{answer.agreed_step:09d}")
    assert steps_in(tmp_path / "saved") == [answer.agreed_step]


@pytest.mark.usefixtures("group")
def test_a_save_that_failed_is_told_and_the_next_one_is_begun(
    beacon: Beacon, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "saved"
    with guard_of(beacon) as guard, paced(guard, root, 2) as checkpoints:
        root.write_text("a file stands in the way")
        for step in range(4):
            if step == 2:
                with pytest.raises(CheckpointError):  # as everybody may see who asks
                    checkpoints._flight.look(DEADLINE_S)
                root.unlink()
            with guard.step(step) as s:
                checkpoints.save_if_due(step, s)

    assert steps_in(root) == [3]
    [error] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "step 1 was not saved" in error.getMessage()
    assert "training continues" in error.getMessage()


@pytest.mark.usefixtures("group")
def test_an_abort_brings_the_save_under_way_to_its_end(beacon: Beacon, tmp_path: Path) -> None:
    class Listening(Guard):
        def on_abort(self, snapshot: Callable[[float], str | None]) -> None:
            self.snapshot = snapshot

    guard = Listening(PLACE, beacon, LocalStore(), framework=NoFramework(), termination_seconds=0)
    with guard, paced(guard, tmp_path / "saved", 1) as checkpoints:
        assert guard.snapshot(0.0) is None  # none was begun
        checkpoints.save_async(0)
        assert guard.snapshot(DEADLINE_S) == str(tmp_path / "saved" / "step-000000000")
        assert checkpoints.wait() == str(tmp_path / "saved" / "step-000000000")  # nothing was taken from the loop


@pytest.mark.usefixtures("group")
def test_after_going_back_no_copy_of_before_is_loaded_wherever_it_lies(beacon: Beacon, tmp_path: Path) -> None:
    root = tmp_path / "saved"
    before = run_id(root)
    folder = tmp_path / before / "here"
    rendezvous = RendezvousClient.from_env(1, {ADDRESS: "127.0.0.1:1", MEMBER: "0"})
    assert rendezvous is not None
    model = nn.Linear(4, 4)
    state = TrainingState(model, torch.optim.SGD(model.parameters(), lr=0.1))
    interval = CheckpointInterval.from_env(environ={"HEALTHD_CHECKPOINT_STEPS": "2"})
    pace = choose_copy_pace(None, 1, {COPY_STEPS: "1"})
    copies = StepCopies(PeerCopies(folder, state), rendezvous, 0, pace)
    with guard_of(beacon) as guard, PacedCheckpoints(guard, interval, root, state, copies=copies) as checkpoints:
        for step in range(6):
            with guard.step(step) as s:
                checkpoints.save_if_due(step, s)
        assert list(folder.iterdir())
        checkpoints.wait()
        checkpoints.go_back(4)
    assert run_id(root) != before  # a node that is a spare by now may hold copies, too
    assert not folder.exists()


def test_a_job_of_one_rank_needs_no_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that they are as before, after the test
        monkeypatch.delenv(name)
    prepare_directory(str(tmp_path / "beacons"))
    monkeypatch.setenv("HEALTHD_BEACON_DIR", str(tmp_path / "beacons"))
    model = nn.Linear(4, 4)
    with guarded_job() as job:
        assert (job.rank, job.world, job.shared.nodes) == (0, 1, 1)
        state = TrainingState(model, torch.optim.SGD(model.parameters(), lr=0.1))
        with job.checkpoints(tmp_path / "saved", state) as checkpoints:
            with job.guard.step(0) as s:
                checkpoints.save_if_due(0, s, also=True)
            assert checkpoints.wait() == str(tmp_path / "saved" / "step-000000000")
    assert not dist.is_initialized()
