"""Each adapter trains, is ordered to checkpoint, leaves with the right codes, resumes: losses equal to an undisturbed run's."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from adapter_job import AdapterJob, hurry
from trainer_job import STEPS

from healthd.trainer.beacons.beacon_page import OrderOutcome

pytestmark = [pytest.mark.torch, pytest.mark.timeout(480)]
PACE = 0.2

ADAPTERS = [
    pytest.param(("plain.py", "ddp"), "", id="ddp"),
    pytest.param(("plain.py", "fsdp2"), "", id="fsdp2"),
    pytest.param(("with_trainer.py",), "transformers", id="huggingface"),
    pytest.param(("with_lightning.py",), "lightning", id="lightning"),
    pytest.param(("with_deepspeed.py", "1"), "deepspeed", id="deepspeed-zero-1"),
    pytest.param(("with_deepspeed.py", "3"), "deepspeed", id="deepspeed-zero-3"),
]


Reference = Callable[..., dict[int, str]]


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """The losses of a script's uninterrupted run; trained once each."""
    known: dict[tuple[str, ...], dict[int, str]] = {}

    def losses(*script: str) -> dict[int, str]:
        if script not in known:
            job = AdapterJob(tmp_path_factory.mktemp("undisturbed"), *script)
            try:
                assert job.start().finish() == 0, job.log()
            finally:
                job.close()
            assert job.steps() == list(range(STEPS))
            known[script] = job.losses()
        return known[script]

    return losses


@pytest.mark.parametrize(("script", "library"), ADAPTERS)
def test_ordered_saved_left_and_resumed_without_the_condemned_node(
    tmp_path: Path, undisturbed: Reference, script: tuple[str, ...], library: str
) -> None:
    if library:
        pytest.importorskip(library)
    job = AdapterJob(tmp_path, *script, nodes=("n0", "n1", "n2"))
    try:
        job.start("--spares=1", pace=PACE)
        job.order(job.ranks(world=2, step=5))
        hurry(job)
        assert job.finish() == 0, job.log()
    finally:
        job.close()

    assert job.codes(1) == [91, 90], job.log()
    assert [event["nodes"] for event in job.events("attempt_started")] == [["n0", "n1"], ["n0", "n2"]]
    answers = [view.acknowledgement for view in job.views(attempt=1)]
    assert {answer.outcome for answer in answers if answer} == {OrderOutcome.LEFT}
    assert len({(answer.agreed_step, answer.checkpoint) for answer in answers if answer}) == 1
    assert job.steps() == list(range(STEPS))  # none lost, none trained twice
    assert job.losses() == undisturbed(*script)


@pytest.mark.parametrize(("script", "library"), ADAPTERS[2:4])
def test_told_to_stop_a_callback_saves_and_a_later_run_goes_on(
    tmp_path: Path, undisturbed: Reference, script: tuple[str, ...], library: str
) -> None:
    pytest.importorskip(library)
    job = AdapterJob(tmp_path, *script)
    try:
        job.start(pace=PACE)
        job.ranks(world=2, step=4)
        job.terminate()
        assert job.finish() == 128 + signal.SIGTERM, job.log()
        assert job.codes(1) == [91, 91], job.log()
        assert job.start().finish() == 0, job.log()
    finally:
        job.close()
    assert job.steps() == list(range(STEPS))
    assert job.losses() == undisturbed(*script)


def test_told_to_go_back_the_callback_saves_nothing_and_the_next_run_begins_before_that_step(
    tmp_path: Path, undisturbed: Reference
) -> None:
    pytest.importorskip("transformers")
    job = AdapterJob(tmp_path, "with_trainer.py")
    try:
        job.start(every=4, pace=PACE)
        job.order(job.ranks(world=2, step=9), "revert", condemned="", before_step=6)
        hurry(job)
        assert job.finish() == 0, job.log()
    finally:
        job.close()

    assert job.codes(1) == [91, 91], job.log()
    steps = job.steps()
    again = steps.index(4, 5)  # checkpoint-4, which holds steps 0 to 3
    assert steps[again:] == list(range(4, STEPS))
    assert job.losses() == undisturbed("with_trainer.py")
    assert (job.checkpoints / "abandoned-checkpoint-8").is_dir()
    assert not (job.checkpoints / "going-back.json").exists()
