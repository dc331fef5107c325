"""`healthctl launch --swap --min-nodes`: without a spare the job goes on with fewer nodes, and with more when they are back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_swap import SwapJob

from healthd.trainer.pages import BeaconView

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]
STEPS, STRIKE = 200, 5
EXAMPLE = ("--example=train_elastic",)


class ElasticJob(SwapJob):
    """The elastic example on pretend nodes."""

    def launch(self, *options: str, nodes: int, steps: int = STEPS, pace: float = 0.1) -> ElasticJob:
        self.start(f"--nodes={nodes}", "--swap", *options, steps=steps, every=1000, pace=pace, more=EXAMPLE)
        return self

    def at(self, step: int, *nodes: str) -> list[BeaconView]:
        """The ranks' pages, once they are on these nodes and at `step` or past it."""

        def there() -> list[BeaconView]:
            views = [view for view in self.views() if view.state.step >= step]
            return views if [view.identity.node for view in views] == list(nodes) else []

        return self.until(there, f"ranks on {nodes} at step {step}")

    def changes(self) -> list[tuple[str, object, object]]:
        """What followed each loss and each return."""
        kinds = ("swapped", "shrunk", "grown", "resumed")
        return [(each["event"], each.get("ranks"), each["lost"]) for kind in kinds for each in self.events(kind)]


MakeJob = Callable[..., ElasticJob]


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[MakeJob]:
    made = []

    def make(*options: str, nodes: int = 3, **how: float) -> ElasticJob:
        made.append(ElasticJob(tmp_path, tuple(f"n{number}" for number in range(nodes))))
        return made[-1].launch(*options, nodes=nodes, **how)

    yield make
    for job in made:
        job.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """On one node."""
    job = ElasticJob(tmp_path_factory.mktemp("undisturbed"), ("n0",))
    job.start("--nodes=1", steps=STEPS, every=1000, more=EXAMPLE)
    assert job.finish() == 0, job.log()
    return job.losses()


def test_nodes_are_lost_one_after_the_other_and_one_returns(make_job: MakeJob, undisturbed: dict[int, str]) -> None:
    job = make_job("--min-nodes=1", "--return-seconds=0.5")
    first = job.at(STRIKE, "n0", "n1", "n2")
    os.kill(first[0].identity.pid, signal.SIGKILL)
    fewer = job.at(STRIKE + 4, "n1", "n2")
    assert [view.identity.pid for view in fewer] == [view.identity.pid for view in first[1:]]

    os.kill(fewer[1].identity.pid, signal.SIGSTOP)
    job.order(fewer, "abort", condemned="n2")
    alone = job.at(STRIKE + 8, "n1")
    assert alone[0].identity.pid == first[1].identity.pid

    more = job.at(STRIKE + 12, "n1", "n0")
    assert more[0].identity.pid == first[1].identity.pid, "a healthy process was ended"
    os.kill(more[0].identity.pid, signal.SIGKILL)  # the one that had the state from the beginning
    job.at(STRIKE + 16, "n0")

    assert job.finish() == 0, job.log()
    assert job.losses() == undisturbed
