"""Two real healthds with pretended ranks before a real controller: the slow one is found, its node watched, and tested when the job has gone."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_process import Controller
from healthd_node import Node, eventually
from simulated_job import SLOW, Job

WITHIN_S = 200  # two passes take half a minute; the machine may be busy
PASS = 'import json; print(json.dumps({"verdict": "pass", "complete": True}))'

SOONER = """
playbook: 1
include: [shipped/default.yaml]
override:
  - rule: straggler-to-be-tested
    match:
      findings: [straggler/gpu, straggler/node, straggler/link]
      severities: [warning]
      evidence: {level: [next_checkpoint, now]}
      job: none
      no_job_s: 1
"""


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    controller = Controller(tmp_path)
    playbook = tmp_path / "sooner.yaml"
    playbook.write_text(SOONER)
    with controller.config.open("a") as config:
        config.write(f"budget: {{isolated_max: 1}}\nplaybooks: [{playbook}]\n")
    controller.start()
    yield controller
    if controller.process is not None and controller.process.poll() is None:
        controller.end(signal.SIGKILL)


def node_of(make_node: Callable[..., Node], controller: Controller, tmp_path: Path, number: int) -> Node:
    token = tmp_path / f"token{number}"
    node = make_node(
        kernel_log=tmp_path / f"kern{number}.log",
        remediator={"url": controller.url, "token_file": str(token), "report_interval_s": 0.5},
        thresholds={"training": {"report_window_s": 0.3}},
        orders={"preflight_command": [sys.executable, "-c", PASS, "{level}"]},
    )
    token.write_text(controller.issue("--node", node.name))
    node.start()
    eventually(node.beacons.is_dir, "the beacon directory")
    return node


def concluded(controller: Controller, node: Node) -> dict[str, Any]:
    time.sleep(0.3)  # who asks more often is refused
    found = controller.call("GET", f"/v1/nodes/{node.name}", "ann").json().get("findings", [])
    return {f"{f['check']}/{f['code']}": f for f in found if f["origin"].startswith("centre:")}


def state(controller: Controller, node: Node) -> str:
    time.sleep(0.3)
    return str(controller.call("GET", f"/v1/nodes/{node.name}", "ann").json()["state"])


def incidents(controller: Controller) -> list[tuple[str, list[str]]]:
    """Of all incidents: the node, and the rules that were decided by, each once (it may have had to wait for a spare)."""
    listed = controller.call("GET", "/v1/incidents", "ann").json()["incidents"]
    whole = [controller.call("GET", f"/v1/incidents/{each['id']}", "ann").json() for each in listed]
    return [(each["node"], [*dict.fromkeys(decision["rule"] for decision in each["decisions"])]) for each in whole]


def rules(controller: Controller, node: Node) -> set[str]:
    """What was decided by in all incidents of a node. A busy machine adds slowdowns to what a test means to show."""
    return {rule for name, decided in incidents(controller) if name == node.name for rule in decided}


@pytest.mark.timeout(2 * WITHIN_S + 60)
def test_a_slow_rank_is_found_at_the_controller_and_its_node_tested_once_the_job_has_gone(
    make_node: Callable[..., Node], controller: Controller, tmp_path: Path
) -> None:
    nodes = [node_of(make_node, controller, tmp_path, number) for number in range(2)]
    job = Job(nodes)
    job.start()
    try:
        found = eventually(lambda: concluded(controller, nodes[1]).get("straggler/gpu"), "the slow rank", WITHIN_S)
        assert (found["severity"], found["component"]["name"]) == ("warning", f"GPU-{SLOW}")
        assert found["evidence"]["slowdown"] == pytest.approx(0.3, abs=0.05)
        assert found["evidence"]["confirmed"] == "unknown"
        assert "straggler-suspected" in rules(controller, nodes[1])
        assert "straggler-suspected" not in rules(controller, nodes[0])
        assert not concluded(controller, nodes[0])
    finally:
        job.close()
    for node in nodes:
        for page in node.beacons.glob("*.beacon"):
            page.unlink()
    eventually(
        lambda: not concluded(controller, nodes[1]), "the passed test takes back what timing alone had said", WITHIN_S
    )
    assert {"straggler-suspected", "straggler-to-be-tested"} <= rules(controller, nodes[1])
    eventually(lambda: state(controller, nodes[1]) == "probation", "it is back")
