"""Ranks that compute wrongly while they train, with a real healthd and controller: their GPUs are named, no other is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from controller_process import Controller
from healthd_node import Node, eventually
from ranks import free_port
from test_silent_hang import read_incidents, read_rules, start_node

JOB = Path(__file__).parent / "sdc_job.py"
FAULTS = ("none", "later", "wrong", "none")
WITHIN_S = 150  # a few seconds on an idle machine


def start_ranks(node: Node, stack: ExitStack) -> None:
    port = free_port()
    gpus = ",".join(f"GPU-{rank}" for rank in range(len(FAULTS)))
    for rank, fault in enumerate(FAULTS):
        environ = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(len(FAULTS)),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "CUDA_VISIBLE_DEVICES": gpus,
            "HEALTHD_BEACON_DIR": str(node.beacons),
            "HEALTHD_NODE": node.name,
            "HEALTHD_JOB": "train",
            "HEALTHD_SDC_SAMPLING": "1",
        }
        process = subprocess.Popen([sys.executable, "-W", "ignore", str(JOB), fault], env=environ)
        stack.callback(process.wait)
        stack.callback(process.kill)


def find_named(controller: Controller, node: Node) -> dict[str, dict[str, Any]] | None:
    found = [each for incident in read_incidents(controller, node) for each in incident["findings"]]
    named = {f"{each['code']} {each['component']['name']}": each for each in found if each["check"] == "sdc"}
    return named if len({each["code"] for each in named.values()}) > 1 else None


@pytest.mark.timeout(2 * WITHIN_S)
def test_the_gpus_that_compute_wrongly_are_named_and_no_other(
    make_node: Callable[..., Node], controller: Controller, tmp_path: Path
) -> None:
    node = start_node(make_node, controller, tmp_path, 0)
    with ExitStack() as stack:
        start_ranks(node, stack)
        named = eventually(lambda: find_named(controller, node), "both verdicts", WITHIN_S)
        assert {*named} == {"contradiction GPU-1", "minority GPU-2"}
        assert {each["severity"] for each in named.values()} == {"error"}
        assert {kind.split()[1]: each["evidence"]["ranks"] for kind, each in named.items()} == {
            "GPU-1": "1",
            "GPU-2": "2",
        }
        assert named["contradiction GPU-1"]["evidence"]["last_good_step"] > 0
        eventually(lambda: "gpu-computes-wrongly" in read_rules(controller, node), "the decision", WITHIN_S)
