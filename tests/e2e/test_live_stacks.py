"""A rank that hangs in its data loader: its stack tells it from those in a collective, and its node stays in service."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from controller_process import Controller
from healthd_node import Node, eventually
from test_silent_hang import find_hang, read_rules, start_node

RANK = Path(__file__).parent / "reading_rank.py"
WITHIN_S = 150
WORLD, HANGS_AT = 4, 40


@pytest.fixture
def nodes(make_node: Callable[..., Node], controller: Controller, tmp_path: Path) -> list[Node]:
    return [start_node(make_node, controller, tmp_path, number) for number in range(2)]


@pytest.fixture
def ranks(nodes: list[Node]) -> Iterator[list[subprocess.Popen[bytes]]]:
    pytest.importorskip("torch")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with ExitStack() as stack:
        started = []
        for number in range(WORLD):
            node = nodes[number // 2]
            place = {"RANK": number, "WORLD_SIZE": WORLD, "LOCAL_RANK": number % 2, "MASTER_ADDR": "127.0.0.1"}
            names = {"HEALTHD_JOB": "reads", "HEALTHD_NODE": node.name, "HEALTHD_BEACON_DIR": str(node.beacons)}
            environ = {name: str(value) for name, value in (place | names | {"MASTER_PORT": port}).items()}
            environ |= {"OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "100"}
            process = subprocess.Popen([sys.executable, str(RANK), str(HANGS_AT)], env=os.environ | environ)
            stack.callback(process.wait)
            stack.callback(process.kill)
            started.append(process)
        yield started


def read_stacks(controller: Controller, incident: str) -> Any:
    jobs = controller.call("GET", f"/v1/incidents/{incident}/stacks", "ann").json()["jobs"]
    return jobs[0] if jobs and jobs[0]["ranks"] == WORLD else None


@pytest.mark.timeout(2 * WITHIN_S + 60)
@pytest.mark.usefixtures("ranks")
def test_a_rank_in_its_data_loader_is_shown_and_takes_no_node(
    nodes: list[Node],
    controller: Controller,
) -> None:
    hang = eventually(lambda: find_hang(controller, nodes[1]), "the verdict", WITHIN_S)
    assert (hang["code"], hang["severity"]) == ("stuck_compute", "warning")
    assert (hang["evidence"]["ranks"], hang["evidence"]["stack"]) == ("3", "data")
    incidents = controller.call("GET", "/v1/incidents", "ann").json()["incidents"]
    (incident,) = [each["id"] for each in incidents if each["node"] == nodes[1].name]
    job = eventually(lambda: read_stacks(controller, incident), "the stacks of all nodes", WITHIN_S)
    assert job["places"] == {"collective": 3, "data": 1}
    lines = job["lines"]
    assert any("__getitem__ (" in line for line in lines[lines.index("  rank 3, in data") :])
    assert "  ranks 0-2, in collective" in lines
    rules = read_rules(controller, nodes[1])
    assert "hang-pointed-at" in rules
    assert "hang-culprit" not in rules
    assert [left for node in nodes for left in node.beacons.glob("*.tmp")] == []
