"""Copies of the state in memory and the optimizer's next update: when does one wait for the other?"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from healthd.trainer.adapters.pytorch_checkpoint_schedule import StepCopies
from healthd.trainer.adapters.pytorch_peer_copies import CopyRefusedError, PeerCopies
from healthd.trainer.adapters.pytorch_state import TrainingState
from healthd.trainer.checkpoint_storage.copy_pace import COPY_STEPS, choose_copy_pace
from healthd.trainer.exchange_limits import RankUnreachableError
from healthd.trainer.rendezvous_client import ADDRESS, MEMBER, RendezvousClient
from tests.unit.healthd.trainer.late_stream import LateStream

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("group")]
DEADLINE_S = 10.0
WHILE_S = 0.3  # an update that does not wait is done by then


class SlowCopies(PeerCopies):
    """Held once `go` is set; with an `error` never."""

    error: Exception | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.go = threading.Event()

    def _held(self, *arguments: Any) -> None:
        assert self.go.wait(DEADLINE_S)
        if self.error is not None:
            raise self.error
        super()._held(*arguments)


class Job:
    """One rank that has trained step 0, whose copy is under way."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.model = nn.Linear(4, 4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        rendezvous = RendezvousClient.from_env(1, {ADDRESS: "127.0.0.1:1", MEMBER: "0"})
        assert rendezvous is not None
        self.rendezvous = rendezvous
        self.copies = SlowCopies(folder, TrainingState(self.model, self.optimizer))
        self.steps = StepCopies(self.copies, rendezvous, 0, choose_copy_pace(None, 1, environ))
        self.model(torch.ones(4)).sum().backward()
        assert self.steps.note_trained(0)
        self.steps.begin(0)
        self.before = self.model.weight.detach().clone()

    @property
    def updated(self) -> bool:
        return not torch.equal(self.model.weight, self.before)


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    made = []

    def make(steps: str = "1") -> Job:
        made.append(Job(tmp_path / "m", {COPY_STEPS: steps} if steps else {}))
        return made[-1]

    yield make
    for job in made:
        job.copies.go.set()
        job.steps.close()


def test_no_update_begins_before_the_copy_of_the_last_step_is_held(make_job: Callable[..., Job]) -> None:
    job = make_job()
    updating = threading.Thread(target=job.optimizer.step)
    updating.start()
    updating.join(WHILE_S)
    assert updating.is_alive()
    assert not job.updated
    assert job.rendezvous.finished == -1, "a step that may be lost counts as finished"
    job.copies.go.set()
    updating.join(DEADLINE_S)
    assert job.updated
    assert job.rendezvous.finished == 0


def test_at_the_pace_that_pays_no_update_waits(make_job: Callable[..., Job]) -> None:
    job = make_job("")
    job.optimizer.step()
    assert not job.copies._flight.done
    assert job.updated
    assert job.rendezvous.finished == 0  # as it is, though its copy may yet be lost


def test_the_wait_for_the_copy_before_is_no_part_of_what_a_copy_costs(
    make_job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job("")
    interval, wait, under_way = job.steps._pace.interval, job.copies.wait, []
    saving = interval.saving

    def record(step: int) -> AbstractContextManager[None]:
        under_way.append(not job.copies._flight.done)
        return saving(step)

    def let_go() -> str:
        job.copies.go.set()
        return wait()

    monkeypatch.setattr(job.copies, "wait", let_go)
    monkeypatch.setattr(interval, "saving", record)
    job.steps.begin(1)
    assert under_way == [False]


def test_a_pace_of_several_steps_is_kept() -> None:
    pace = choose_copy_pace(None, 1, {COPY_STEPS: "2"})
    assert not pace.every_step
    assert [pace.interval.due(step) for step in range(2)] == [False, True]


def test_memory_that_is_full_ends_no_training_and_says_what_to_do(
    make_job: Callable[..., Job], caplog: pytest.LogCaptureFixture
) -> None:
    job = make_job()
    job.copies.error = OSError(28, "No space left on device")
    job.copies.go.set()
    with caplog.at_level(logging.ERROR):
        job.optimizer.step()
    assert job.updated
    for words in ("step 0 is not held", "No space left", str(job.copies.directory), COPY_STEPS, "training continues"):
        assert words in caplog.text
    job.copies.error = None
    job.steps.note_trained(1)
    job.steps.begin(1)
    assert job.copies.held_before_step() == str(job.copies.directory)


@pytest.mark.parametrize("replaced", [True, False])
def test_no_update_overtakes_the_copies_of_a_group_that_has_lost_a_rank(
    make_job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, *, replaced: bool
) -> None:
    monkeypatch.setattr("healthd.trainer.adapters.pytorch_checkpoint_schedule.NOTICE_SECONDS", 0.1)
    job = make_job()
    job.copies.error = RankUnreachableError("a rank is gone")
    job.copies.go.set()
    if not replaced:  # the launcher knows of no loss: the exchange alone has failed
        job.optimizer.step()
        assert job.updated
        return
    job.rendezvous._take({"type": "stop", "why": "no spare", "broken": True})
    with pytest.raises(CopyRefusedError) as refused:
        job.optimizer.step()
    assert refused.value.rank_lost
    assert not job.updated
    assert job.rendezvous.finished == -1


def test_what_an_order_wants_is_held_at_once(make_job: Callable[..., Job]) -> None:
    job = make_job("")
    job.copies.go.set()
    assert job.steps.hold(1) == str(job.copies.directory)
    assert job.rendezvous.finished == 1


def test_a_job_that_has_ended_leaves_the_optimizer_alone(make_job: Callable[..., Job]) -> None:
    job = make_job()
    job.copies.go.set()
    job.steps.release()
    job.rendezvous.finished = -1
    job.optimizer.step()
    assert job.rendezvous.finished == -1


@pytest.mark.parametrize("text", ["0", "x", "-1", "1.5"])
def test_a_pace_that_cannot_be_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=f"{COPY_STEPS}="):
        choose_copy_pace(None, 1, {COPY_STEPS: text})


def test_the_interval_between_checkpoints_is_not_that_between_copies() -> None:
    pace = choose_copy_pace(None, 1, {"HEALTHD_CHECKPOINT_STEPS": "1000"})
    assert pace.interval.due(0)


@pytest.mark.parametrize("steps", ["1", ""])
def test_a_copy_beside_training_is_ordered_before_the_next_update(make_job: Callable[..., Job], steps: str) -> None:
    job = make_job(steps)
    job.copies.go.set()
    job.copies.wait()
    job.copies.overlap_updates(LateStream())
    job.steps.begin(1)
    job.optimizer.step()
    assert job.updated
    assert job.copies.load() == 2
    assert not job.updated, "the state after the update was copied"
    assert job.copies.last is not None
    assert job.copies.last.step == 1
