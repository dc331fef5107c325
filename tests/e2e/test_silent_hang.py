"""A rank that stops without a word: two witnesses name its node within a minute, and the shipped playbook aborts the job."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from controller_process import Controller
from healthd_node import Node, eventually

RANK = Path(__file__).parent / "silent_rank.py"
WITHIN_S = 150  # half a minute on an idle machine
HANGS_AT = 40


def start_node(make_node: Callable[..., Node], controller: Controller, tmp_path: Path, number: int) -> Node:
    token = tmp_path / f"token{number}"
    remediator = {"url": controller.url, "token_file": str(token), "report_interval_s": 0.5}
    node = make_node(kernel_log=tmp_path / f"kern{number}.log", remediator=remediator)
    token.write_text(controller.issue("--node", node.name))
    node.start()
    eventually(node.beacons.is_dir, "the beacon directory")
    return node


def start_ranks(nodes: list[Node], meeting: Path, stack: ExitStack) -> list[subprocess.Popen[bytes]]:
    world = 2 * len(nodes)
    meeting.write_bytes(bytes(world))
    ranks = []
    for number in range(world):
        node = nodes[number // 2]
        args = [sys.executable, str(RANK), str(node.beacons), node.name, *map(str, (number, world, meeting, HANGS_AT))]
        ranks.append(subprocess.Popen(args))
        stack.callback(ranks[-1].wait)
        stack.callback(ranks[-1].kill)
    return ranks


def read_incidents(controller: Controller, node: Node) -> list[dict[str, Any]]:
    time.sleep(0.5)  # who asks more often is refused
    listed = controller.call("GET", "/v1/incidents", "ann").json()["incidents"]
    own = [each["id"] for each in listed if each["node"] == node.name]
    return [controller.call("GET", f"/v1/incidents/{each}", "ann").json() for each in own]


def find_hang(controller: Controller, node: Node) -> dict[str, Any] | None:
    found = [each for incident in read_incidents(controller, node) for each in incident["findings"]]
    return next((each for each in found if each["check"] == "hang"), None)


def read_rules(controller: Controller, node: Node) -> set[str]:
    incidents = read_incidents(controller, node)
    return {decision["rule"] for incident in incidents for decision in incident["decisions"]}


@pytest.mark.timeout(2 * WITHIN_S + 60)
def test_a_rank_that_stops_without_a_word_is_aborted_by_the_shipped_playbook(
    make_node: Callable[..., Node], controller: Controller, tmp_path: Path
) -> None:
    nodes = [start_node(make_node, controller, tmp_path, number) for number in range(2)]
    with ExitStack() as stack:
        start_ranks(nodes, tmp_path / "meeting", stack)
        found = eventually(lambda: nodes[1].findings().get("training/rank_idle"), "the idle rank", WITHIN_S)
        assert (found["severity"], found["evidence"]["ranks"], found["evidence"]["section"]) == (
            "warning",
            "3",
            "backward",
        )
        assert found["evidence"]["cpu_percent"] < 10
        hang = eventually(lambda: find_hang(controller, nodes[1]), "the verdict", WITHIN_S)
        assert (hang["severity"], hang["evidence"]["ranks"], hang["evidence"]["section"]) == ("error", "3", "backward")
        eventually(lambda: "hang-culprit" in read_rules(controller, nodes[1]), "the decision", WITHIN_S)
        assert "training/rank_idle" not in nodes[0].findings()
        assert read_rules(controller, nodes[0]) == set()
        assert "training/stalled" not in nodes[1].findings()  # which comes after two minutes
