"""A swap is told from the launcher to the node's healthd, the controller, and whoever asks it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_process import Controller
from healthd_node import Node, eventually
from test_swap import STRIKE, SwapJob

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[SwapJob]:
    place = tmp_path / "job"
    place.mkdir()
    job = SwapJob(place, ("n0", "n1", "n2"))
    yield job
    job.close()


def swaps_of(controller: Controller) -> list[dict[str, Any]]:
    answer = controller.call("GET", "/v1/jobs/job", "ann")
    return answer.json().get("swaps", []) if answer.ok else []


def test_a_swap_is_on_the_jobs_page(
    make_node: Callable[..., Node],
    controller: Controller,
    job: SwapJob,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token = tmp_path / "node-token"
    remediator = {"url": controller.url, "token_file": str(token), "report_interval_s": 0.5}
    pages = str(job.place / "beacons" / "n0")  # this healthd is that of the first pretend node, where the launcher runs
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=remediator, beacon_dir=pages)
    token.write_text(controller.issue("--node", node.name))
    node.start()
    monkeypatch.setenv("HEALTHD_SOCKET", str(node.socket))
    job.start("--nodes=2", "--spares=1", "--ranks-per-node=1", "--swap", steps=2000, every=1000, pace=0.05)

    os.kill(job.ranks(world=2, step=STRIKE)[1].identity.pid, signal.SIGKILL)
    whole = eventually(
        lambda: (found := swaps_of(controller)) and found[0]["swap"]["outcome"] == "swapped" and found,
        lambda: f"the swap; {swaps_of(controller)}; {job.log()}; {node.log()}",
    )
    [event] = job.events("swapped")
    [reported] = whole
    assert reported["node"] == node.name
    assert reported["swap"]["lost"] == [{"rank": 1, "node": "n1", "after": "n2"}]
    same = {"generation": 1, "seconds": event["seconds"], "phases": event["phases"], "step": event["step"]}
    assert {name: reported["swap"][name] for name in same} == same
    assert reported["swap"]["lost_steps"] == event["lost"] == 0

    controller.end(signal.SIGKILL)
    controller.start()
    eventually(lambda: swaps_of(controller) == whole, "the same swap from a controller that has started anew")
