"""torchrun's elastic agents: a condemned node leaves, the rest meet again and go on, a spare joins; no step is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from adapter_job import hurry
from elastic_job import ElasticJob

from healthd.trainer.beacons.beacon_page import OrderOutcome
from healthd.trainer.beacons.page_reader import BeaconView, read_page

pytestmark = [pytest.mark.torch, pytest.mark.timeout(480)]
STEPS = 600
PACE = 0.25


def living(job: ElasticJob, *nodes: str, step: int) -> list[BeaconView]:
    """The pages of exactly these nodes' ranks, once each is at `step` or past it."""

    def there() -> list[BeaconView]:
        found = [view for attempt in range(10) for view in job.views(attempt) if view.alive]
        fit = {view.identity.node for view in found if view.state.step >= step and view.identity.world == len(nodes)}
        return found if fit == set(nodes) and len(found) == len(nodes) else []

    return job.until(there, f"{nodes} at step {step}")


def test_a_node_leaves_the_rest_go_on_a_spare_joins(tmp_path: Path) -> None:
    job = ElasticJob(tmp_path, steps=STEPS, pace=PACE)
    try:
        job.join("n0")
        job.until(lambda: [view for view in job.views(0) if view.alive], "the host of the rendezvous")
        job.join("n1")
        both = living(job, "n0", "n1", step=3)

        job.order(both, condemned="n1")
        assert job.left("n1") != 0
        alone = living(job, "n0", step=6)

        job.join("n2")
        with_spare = living(job, "n0", "n2", step=alone[0].state.step)
        job.order(with_spare, condemned="elsewhere")  # by now n0's agent has counted a restart, n2's has not
        hurry(job)

        assert job.left("n0") == 0, job.log()
        assert job.left("n2") == 0, job.log()
    finally:
        job.close()
    assert job.steps() == list(range(STEPS)), job.log()  # none lost, none trained twice
    answers = [read_page(view.path).acknowledgement for view in (*both, *with_spare)]
    assert {answer.outcome for answer in answers if answer} == {OrderOutcome.LEFT}
