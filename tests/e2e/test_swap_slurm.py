"""`healthctl launch --swap` inside a real Slurm allocation: ranks are replaced, nodes go back and others come."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from slurm_batch import ROOT, Submit, find_task

from healthctl.demo.slurm_cluster import SlurmCluster
from healthctl.demo.training import COMMAND
from healthd.trainer.beacons.beacon import MailboxOrder, read_all_pages
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.mailbox import post_order

pytestmark = [pytest.mark.slurm, pytest.mark.torch]


def test_a_killed_and_a_frozen_rank_are_replaced_within_one_step(
    submit: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEALTHD_COPY_STEPS", "1")
    prepare_directory(str(tmp_path / "beacons"))
    losses = tmp_path / "losses"
    training = f"--steps 90 --every 1000 --step-seconds 0.1 --checkpoints {tmp_path}/checkpoints --losses {losses}"
    job = submit(4, "--swap --spares 2 --gate off", f"exec {' '.join(COMMAND)} {training}")

    def trained(step: int) -> bool:
        return losses.exists() and len(losses.read_text().splitlines()) > step

    job.until(lambda: trained(10), "step 10")
    first = find_task(job, 0)
    os.kill(find_task(job, 1), signal.SIGKILL)
    job.until(lambda: len(job.all("swapped")) == 1, "the first spare to train")
    node = job.all("rank_replaced")[0]["after"]  # of whichever spare was ready first
    frozen = find_task(job, node=node)
    os.kill(frozen, signal.SIGSTOP)
    [page] = [view for view in read_all_pages(str(tmp_path / "beacons"))[0] if view.identity.rank == 0 and view.alive]
    post_order(page.path, MailboxOrder("o1", "abort", "a test", (node,), time.time() + 600))
    job.until(lambda: len(job.all("swapped")) == 2, "the second spare to train")
    job.until(lambda: not Path(f"/proc/{frozen}").exists(), "the frozen task to be ended")
    assert find_task(job, 0) == first

    assert job.code() == 0, job.log()

    assert len(job.all("attempt_started")) == 1
    steps = [json.loads(line)["step"] for line in losses.read_text().splitlines()]
    assert sorted(set(steps)) == list(range(90))
    assert [event["lost"] for event in job.all("swapped")] == [0, 0], "a finished step was trained twice"


def test_an_ejected_node_is_given_back_and_another_one_takes_its_place(
    submit: Submit, slurm_cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEALTHD_BEACON_DIR", str(tmp_path / "beacons" / "{node}"))
    (tmp_path / "beacons").mkdir()
    for node in slurm_cluster.shape.nodes:
        prepare_directory(str(tmp_path / "beacons" / node))
    losses = tmp_path / "losses"
    training = f"--steps 9999 --every 9999 --step-seconds 0.1 --checkpoints {tmp_path}/checkpoints --losses {losses}"
    job = submit(3, "--swap --nodes 2 --spares 1 --gate off", f"exec {' '.join(COMMAND)} {training}")

    def trained() -> int:
        return len(losses.read_text().splitlines()) if losses.exists() else 0

    def eject(node: str) -> None:
        before = trained()
        job.until(lambda: trained() > before + 3, "training goes on")
        for each in slurm_cluster.shape.nodes:
            for page in read_all_pages(str(tmp_path / "beacons" / each))[0]:
                order = MailboxOrder(node, "checkpoint_then_eject", "a test", (node,), time.time() + 600)
                post_order(page.path, order)

    job.until(trained, "training")
    first, ejected = find_task(job, 0), job.all("attempt_started")[0]["nodes"][1]
    slurm_cluster.command("scontrol", "update", f"nodename={ejected}", "state=drain", "reason=a test")
    try:
        eject(ejected)
        job.until(lambda: job.all("node_released"), "the node to be given back")
        job.until(lambda: slurm_cluster.node_states()[ejected] == "drained", "a drained node, which can be repaired")
        job.until(lambda: job.all("node_returned"), "processes on the node that was granted")
    finally:
        slurm_cluster.command("scontrol", "update", f"nodename={ejected}", "state=resume")
    [granted] = [event["node"] for event in job.all("node_granted")]
    assert granted not in (ejected, *job.all("attempt_started")[0]["nodes"])
    eject(job.all("rank_replaced")[0]["after"])
    job.until(lambda: len(job.all("swapped")) == 2, "a step on the node that was granted")
    assert job.all("rank_replaced")[1]["after"] == granted
    assert find_task(job, 0) == first
    assert len(job.all("attempt_started")) == 1
    assert not list(ROOT.glob("slurm_job_*")), "scontrol leaves scripts where it resizes a job"


def test_a_job_shrinks_and_the_node_that_returns_has_a_step_of_its_own(submit: Submit, tmp_path: Path) -> None:
    prepare_directory(str(tmp_path / "beacons"))
    training = (
        f"--example train_elastic --steps 9999 --every 9999 --step-seconds 0.1 --checkpoints {tmp_path}/checkpoints"
    )
    options = "--swap --min-nodes 1 --return-seconds 0.5 --gate off"
    job = submit(2, options, f"exec {' '.join(COMMAND)} {training}")
    job.until(
        lambda: len([view for view in read_all_pages(str(tmp_path / "beacons"))[0] if view.state.step > 3]) == 2,
        "step 3",
    )
    first, node = find_task(job, 0), job.all("attempt_started")[0]["nodes"][1]
    os.kill(find_task(job, 1), signal.SIGKILL)
    job.until(lambda: job.all("shrunk"), "a step without the node")
    job.until(lambda: job.all("grown"), "a step with the node that returned")
    assert [event["node"] for event in job.all("node_returned")] == [node]

    frozen = find_task(job, 2)
    os.kill(frozen, signal.SIGSTOP)
    [page] = [view for view in read_all_pages(str(tmp_path / "beacons"))[0] if view.identity.pid == first]
    post_order(page.path, MailboxOrder("o1", "abort", "a test", (node,), time.time() + 600))
    job.until(lambda: len(job.all("shrunk")) == 2, "a step without the condemned node")
    job.until(lambda: not Path(f"/proc/{frozen}").exists(), "the frozen task to be ended")
    assert find_task(job, 0) == first
    assert len(job.all("attempt_started")) == 1
