"""Real training, real orders: every way out ends with losses equal, bit for bit, to those of an undisturbed run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from trainer_job import STEPS, References, TrainingJob

from healthd.trainer.beacons.beacon_page import OrderOutcome
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.beacons.page_reader import BeaconView

pytestmark = pytest.mark.torch
Reference = Callable[[int], dict[int, str]]
PACE = 0.05


@pytest.fixture(scope="session")
def undisturbed(references: References) -> Reference:
    """The losses of an uninterrupted run, by world size."""
    return references.losses


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[Callable[..., TrainingJob]]:
    jobs: list[TrainingJob] = []

    def make(*nodes: str, beacons: bool = True) -> TrainingJob:
        jobs.append(TrainingJob(tmp_path, nodes=nodes, beacons=beacons))
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()


MakeJob = Callable[..., TrainingJob]


def test_graceful_no_step_is_lost_and_the_spare_takes_over(make_job: MakeJob, undisturbed: Reference) -> None:
    job = make_job("n0", "n1", "n2", "n3").start("--spares=1", pace=PACE)
    job.order(job.ranks(world=3, step=5))

    assert job.finish() == 0, job.log()

    assert [event["nodes"] for event in job.events("attempt_started")] == [["n0", "n1", "n2"], ["n0", "n2", "n3"]]
    assert job.codes(1) == [91, 90, 91]
    answers = [view.acknowledgement for view in job.views(attempt=1)]
    assert {answer.outcome for answer in answers if answer} == {OrderOutcome.LEFT}
    assert len({(answer.agreed_step, answer.checkpoint) for answer in answers if answer}) == 1
    assert job.steps() == list(range(STEPS))  # none lost, none trained twice
    assert job.losses() == undisturbed(3)


def test_abort_frees_the_ranks_that_wait_for_a_frozen_one(make_job: MakeJob, undisturbed: Reference) -> None:
    job = make_job("n0", "n1", "n2").start("--spares=1", "--leave-seconds=2", every=4, pace=PACE)
    ranks = job.ranks(world=2, step=6)
    os.kill(ranks[1].identity.pid, signal.SIGSTOP)
    job.order(ranks, "abort")

    assert job.finish() == 0, job.log()

    assert job.codes(1) == [92, -9]
    assert [event["nodes"] for event in job.events("attempt_started")] == [["n0", "n1"], ["n0", "n2"]]
    answer = job.views(attempt=1)[0].acknowledgement
    assert answer is not None
    assert answer.outcome is OrderOutcome.ABORTED
    assert job.losses() == undisturbed(2)


def test_a_rank_that_waits_for_a_frozen_one_hears_sigterm(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEALTHD_TERMINATION_SECONDS", "2")
    job = make_job("n0", "n1").start("--leave-seconds=2", every=4, pace=PACE)
    ranks = job.ranks(world=2, step=6)
    os.kill(ranks[1].identity.pid, signal.SIGSTOP)
    job.until(lambda: [v for v in job.views()[:1] if v.section_name in ("backward", "communication")], "rank 0 to wait")
    os.kill(ranks[0].identity.pid, signal.SIGTERM)

    job.until(lambda: [v for v in job.views()[:1] if not v.alive], "rank 0 to end")
    job.terminate()
    job.finish()

    answer = job.views()[0].acknowledgement
    assert answer is not None
    assert (answer.order, answer.outcome, answer.exit_code) == ("sigterm", OrderOutcome.ABORTED, 92)


def test_a_rank_killed_during_the_agreement(make_job: MakeJob, undisturbed: Reference) -> None:
    job = make_job("n0", "n1").start("--leave-seconds=5", every=4, pace=PACE)
    ranks = job.ranks(world=2, step=6)
    job.order(ranks[:1])
    job.until(lambda: [view for view in job.views()[:1] if view.acknowledgement], "rank 0 to vote")
    os.kill(ranks[1].identity.pid, signal.SIGKILL)

    assert job.finish() == 0, job.log()

    answer = job.views(attempt=1)[0].acknowledgement
    assert answer is not None
    assert (answer.outcome, answer.agreed_step) == (OrderOutcome.SEEN, -1)
    assert job.codes(1)[1] == -9
    assert job.losses() == undisturbed(2)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_killed_during_the_save(make_job: MakeJob, undisturbed: Reference, victim: int) -> None:
    job = make_job("n0", "n1").start("--leave-seconds=20", every=4, pace=PACE)
    ranks = job.ranks(world=2, step=5)
    job.order(ranks, condemned="elsewhere")

    def agreed() -> list[BeaconView]:
        return [view for view in job.views() if view.acknowledgement and view.acknowledgement.agreed_step >= 0]

    [answer, *_] = [view.acknowledgement for view in job.until(agreed, "the ranks to agree")]
    assert answer is not None
    aside = job.checkpoints / f".step-{answer.agreed_step:09d}.tmp"  # others are of saves that nobody waits for
    job.until(lambda: ranks if aside.exists() else [], "the save to begin")
    os.kill(ranks[victim].identity.pid, signal.SIGKILL)

    assert job.finish() == 0, job.log()

    assert job.codes(1)[victim] == -9
    assert job.codes(1)[1 - victim] in (91, 92)  # 91 only if the kill came after the save's last exchange
    assert not list(job.checkpoints.glob(".step-*"))
    assert job.losses() == undisturbed(2)


def test_a_cancelled_order_changes_nothing(make_job: MakeJob, undisturbed: Reference) -> None:
    job = make_job("n0", "n1").start(pace=PACE)
    ranks = job.ranks(world=2, step=4)
    order = job.order(ranks[:1])
    job.until(lambda: [view for view in job.views()[:1] if view.acknowledgement], "rank 0 to vote")
    for view in ranks:
        post_order(view.path, order._replace(cancelled=True))

    assert job.finish() == 0, job.log()

    assert len(job.events("attempt_started")) == 1
    answer = job.views()[0].acknowledgement
    assert answer is not None
    assert answer.outcome is OrderOutcome.CANCELLED
    assert job.losses() == undisturbed(2)


def test_without_healthd_training_goes_on_with_one_warning_a_rank(make_job: MakeJob, undisturbed: Reference) -> None:
    job = make_job("n0", "n1", beacons=False).start()

    assert job.finish() == 0, job.log()

    assert job.log().count("is healthd running on this node?") == 2
    assert job.losses() == undisturbed(2)


def test_told_to_stop_the_job_saves_and_goes_on_later_and_survives_a_truncated_checkpoint(
    make_job: MakeJob, undisturbed: Reference
) -> None:
    job = make_job("n0", "n1").start(every=4, pace=PACE)
    job.ranks(world=2, step=6)
    job.terminate()
    assert job.finish() == 128 + signal.SIGTERM, job.log()
    assert job.codes(1) == [91, 91]
    saved = job.steps()[-1]
    newest = max(job.checkpoints.glob("step-*"))
    assert newest.name == f"step-{saved:09d}"
    part = newest / "__1_0.distcp"
    part.write_bytes(part.read_bytes()[:-1])
    size = part.stat().st_size

    assert job.start(every=4).finish() == 0, job.log()

    assert f"{part}: {size} bytes, the manifest says {size + 1}" in job.log()
    assert f"falling back from {newest.name} to step-" in job.log()
    assert job.losses() == undisturbed(2)
