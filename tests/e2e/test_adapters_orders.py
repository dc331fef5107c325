"""Each adapter trains, is ordered to checkpoint, leaves with the right codes, resumes: losses equal to an undisturbed run's."""

from __future__ import annotations

from pathlib import Path

import pytest
from adapter_job import AdapterJob
from trainer_job import STEPS

from healthd.trainer.page import Outcome

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
PACE = 0.05

ADAPTERS = [
    pytest.param(("plain.py", "ddp"), "", id="ddp"),
    pytest.param(("plain.py", "fsdp2"), "", id="fsdp2"),
    pytest.param(("with_trainer.py",), "transformers", id="huggingface"),
    pytest.param(("with_lightning.py",), "lightning", id="lightning"),
    pytest.param(("with_deepspeed.py", "1"), "deepspeed", id="deepspeed-zero-1"),
    pytest.param(("with_deepspeed.py", "3"), "deepspeed", id="deepspeed-zero-3"),
]


@pytest.mark.parametrize(("script", "library"), ADAPTERS)
def test_ordered_saved_left_and_resumed_without_the_condemned_node(
    tmp_path: Path, script: tuple[str, ...], library: str
) -> None:
    if library:
        pytest.importorskip(library)
    undisturbed = AdapterJob(tmp_path / "undisturbed", *script)
    assert undisturbed.start().finish() == 0, undisturbed.log()
    assert undisturbed.steps() == list(range(STEPS))

    job = AdapterJob(tmp_path / "ordered", *script, nodes=("n0", "n1", "n2"))
    try:
        job.start("--spares=1", pace=PACE)
        job.order(job.ranks(world=2, step=5))
        assert job.finish() == 0, job.log()
    finally:
        job.close()

    assert job.codes(1) == [91, 90], job.log()
    assert [event["nodes"] for event in job.events("attempt_started")] == [["n0", "n1"], ["n0", "n2"]]
    answers = [view.acknowledgement for view in job.views(attempt=1)]
    assert {answer.outcome for answer in answers if answer} == {Outcome.LEFT}
    assert len({(answer.agreed_step, answer.checkpoint) for answer in answers if answer}) == 1
    assert job.steps() == list(range(STEPS))  # none lost, none trained twice
    assert job.losses() == undisturbed.losses()
