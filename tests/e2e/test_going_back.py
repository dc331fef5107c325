"""A loss that is no number: seen by the node, answered by the controller's policy, and the job goes on from before it."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_process import Controller
from healthd_node import Node
from nan_job import EVERY, POISON, STEPS

from healthd.trainer.beacons.beacon_page import OrderOutcome
from healthd.trainer.beacons.page_reader import read_all_pages

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
POLICY = ROOT / "playbooks" / "alternatives" / "training-goes-back.yaml"
DEADLINE_S = 180.0


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    controller = Controller(tmp_path)
    with controller.config.open("a") as config:
        config.write(f"playbooks: [{POLICY}]\n")
    controller.start()
    yield controller
    if controller.process is not None and controller.process.poll() is None:
        controller.end(signal.SIGKILL)


@pytest.fixture
def node(make_node: Callable[..., Node], controller: Controller, tmp_path: Path) -> Node:
    (tmp_path / "token").touch()
    uplink = {"url": controller.url, "token_file": str(tmp_path / "token"), "report_interval_s": 0.5}
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=uplink)
    (tmp_path / "token").write_text(controller.issue("--node", node.name))
    node.start()
    return node


def launched(node: Node, place: Path) -> subprocess.CompletedProcess[bytes]:
    script = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("nan_job.py"))]
    argv = [sys.executable, "-m", "healthctl.main", "launch", "--backend=local", "--node-names=a,b", "--gate=off"]
    argv += [f"--events={place}/events", "--", *script, f"{place}/checkpoints", f"{place}/losses"]
    environ = {**os.environ, "HEALTHD_BEACON_DIR": str(node.beacons), "HEALTHD_JOB": "train", "PYTHONPATH": str(ROOT)}
    return subprocess.run(argv, env=environ, capture_output=True, timeout=DEADLINE_S, check=False)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_job_goes_on_from_before_its_loss_was_no_number(node: Node, tmp_path: Path) -> None:
    done = launched(node, tmp_path)

    assert done.returncode == 0, done.stderr.decode() + node.log()
    ended = [event for event in lines(tmp_path / "events") if event["event"] == "attempt_ended"]
    assert [[rank["code"] for rank in event["ranks"]] for event in ended] == [[91, 91], [0, 0]]
    assert [event["condemned"] for event in ended] == [[], []]

    first, second = ([x for x in lines(tmp_path / "losses") if x["attempt"] == attempt] for attempt in ("1", "2"))
    assert math.isnan(float.fromhex(first[-1]["loss"]))
    resumed = POISON - 1 - (POISON - 1) % EVERY  # the newest that was complete before the last good step
    assert [x["step"] for x in second] == list(range(resumed, STEPS))
    assert all(math.isfinite(float.fromhex(x["loss"])) for x in second)
    assert [x["loss"] for x in second[:2]] == [x["loss"] for x in first[resumed : resumed + 2]]

    left = {path.name for path in (tmp_path / "checkpoints").iterdir() if path.name.startswith("abandoned")}
    assert f"abandoned-step-{resumed + EVERY - 1:09d}" in left
    assert min(left) == f"abandoned-step-{resumed + EVERY - 1:09d}"
    assert not (tmp_path / "checkpoints" / "going-back.json").exists()
    answers = [view.acknowledgement for view in read_all_pages(str(node.beacons))[0] if view.identity.attempt == 1]
    assert [(answer.outcome, answer.exit_code) for answer in answers if answer] == [(OrderOutcome.LEFT, 91)] * 2
