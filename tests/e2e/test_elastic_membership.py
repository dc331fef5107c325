"""`healthctl launch --swap --min-nodes`: without a spare the job goes on with fewer nodes, and with more when they are back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_swap import SwapJob

from healthd.trainer.beacons.page_reader import BeaconView

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]
STEPS, STRIKE, PACE = 900, 5, 0.1  # enough for processes that return on a busy machine
EXAMPLE = ("--example=train_elastic",)


class ElasticJob(SwapJob):
    """The elastic example on pretend nodes."""

    def launch(self, *options: str, nodes: int, steps: int = STEPS, more: Sequence[str] = EXAMPLE) -> ElasticJob:
        self.start(f"--nodes={nodes}", "--swap", *options, steps=steps, every=1000, pace=PACE, more=more)
        return self

    def at(self, step: int, *nodes: str) -> list[BeaconView]:
        """The ranks' pages, once they are on these nodes and at `step` or past it."""

        def there() -> list[BeaconView]:
            views = [view for view in self.views() if view.state.step >= step]
            return views if [view.identity.node for view in views] == list(nodes) else []

        return self.until(there, f"ranks on {nodes} at step {step}")

    def changes(self) -> list[tuple[str, object, object]]:
        """What followed each loss and each return: with how many ranks, and how many finished steps were lost."""
        found = [each for kind in ("swapped", "shrunk", "grown", "resumed") for each in self.events(kind)]
        found.sort(key=lambda each: float(str(each["at"])))
        return [(str(each["event"]), each.get("ranks"), each["lost"]) for each in found]


MakeJob = Callable[..., ElasticJob]


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[MakeJob]:
    made = []

    def make(*options: str, nodes: int, **how: Any) -> ElasticJob:
        made.append(ElasticJob(tmp_path, tuple(f"n{number}" for number in range(nodes))))
        return made[-1].launch(*options, nodes=nodes, **how)

    yield make
    for job in made:
        job.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Of one rank, which trains every microbatch itself."""
    job = ElasticJob(tmp_path_factory.mktemp("undisturbed"), ("n0",))
    job.start("--nodes=1", steps=STEPS, every=1000, more=EXAMPLE)
    assert job.finish() == 0, job.log()
    return job.losses()


def kill(view: BeaconView) -> None:
    os.kill(view.identity.pid, signal.SIGKILL)


def pids(views: list[BeaconView]) -> list[int]:
    return [view.identity.pid for view in views]


def test_nodes_are_lost_one_after_the_other_and_return(make_job: MakeJob, undisturbed: dict[int, str]) -> None:
    job = make_job("--min-nodes=1", "--return-seconds=10", nodes=3)  # n0 returns after the loss of n2
    first = job.at(STRIKE, "n0", "n1", "n2")
    kill(first[0])
    fewer = job.at(STRIKE + 2, "n1", "n2")
    assert pids(fewer) == pids(first[1:])

    os.kill(fewer[1].identity.pid, signal.SIGSTOP)
    job.order(fewer, "abort", condemned="n2")
    alone = job.at(STRIKE + 5, "n1")
    assert pids(alone) == pids(first[1:2])

    more = job.at(STRIKE + 5, "n1", "n0")
    job.until(lambda: more if job.events("grown") else [], "a step with the node that returned")
    assert pids(more)[:1] == pids(alone), "a healthy process was ended"
    kill(more[0])  # the only one that was there from the beginning
    job.until(lambda: more if len(job.events("shrunk")) == 3 else [], "a step without it")
    assert pids(job.at(STRIKE + 5, "n0")) == pids(more[1:])

    job.close()
    trained = job.losses()
    assert trained == {step: undisturbed[step] for step in range(max(trained) + 1)}
    assert job.changes()[:4] == [("shrunk", 2, 0), ("shrunk", 1, 0), ("grown", 2, 0), ("shrunk", 1, 0)]
    assert [event["node"] for event in job.events("node_returned")][:1] == ["n0"], "n2 is condemned"
    assert len(job.events("attempt_started")) == 1


def test_a_second_node_is_lost_while_the_job_shrinks(make_job: MakeJob, undisturbed: dict[int, str]) -> None:
    job = make_job("--min-nodes=1", "--return-seconds=0", nodes=3, steps=20)
    first = job.at(STRIKE, "n0", "n1", "n2")
    kill(first[2])
    job.until(lambda: first if job.events("shrinking") else [], "the job shrinks")
    kill(first[0])
    assert job.finish() == 0, job.log()
    assert len(job.events("attempt_started")) == 1, job.log()
    assert job.losses() == {step: undisturbed[step] for step in range(20)}


def test_the_living_rank_of_a_node_that_lost_another_waits_for_its_return(
    make_job: MakeJob, undisturbed: dict[int, str]
) -> None:
    job = make_job("--min-nodes=1", "--ranks-per-node=2", "--return-seconds=0.5", nodes=2)
    first = job.at(STRIKE, "n0", "n0", "n1", "n1")
    kill(first[2])
    job.at(STRIKE + 2, "n0", "n0")
    again = job.at(STRIKE + 2, "n0", "n0", "n1", "n1")
    assert set(pids(first)) - set(pids(again)) == {first[2].identity.pid}

    job.until(lambda: again if job.events("grown") else [], "a step with the node that returned")
    job.close()
    assert job.losses() == {step: undisturbed[step] for step in job.losses()}
    assert job.changes() == [("shrunk", 2, 0), ("grown", 4, 0)]


def test_a_job_whose_state_is_sharded_starts_again_and_says_why(make_job: MakeJob) -> None:
    job = make_job("--min-nodes=1", nodes=2, steps=20, more=("--example=../tests/e2e/training/sharded",))
    kill(job.at(STRIKE, "n0", "n1")[1])
    assert job.finish() == 0, job.log()
    assert "the ranks hold different parts of the state" in str(job.events("swap_impossible")[0]["text"])
    assert len(job.events("attempt_started")) == 2
    assert set(job.losses()) == set(range(20))
