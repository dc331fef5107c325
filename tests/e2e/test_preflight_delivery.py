"""A preflight that nobody ordered, told to a real healthd by its socket, reported to a controller, and disproved by a pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from group_processes import Group
from healthd_node import Node, eventually
from stub_controller import StubController

from preflight.integrations.healthd_delivery import DeliveryError, deliver_to_healthd

SOMEBODY = 65534
ASK_AS = """
import os, sys
from preflight.integrations.healthd_delivery import DeliveryError, deliver_to_healthd
os.setgid({uid}); os.setuid({uid})
try:
    print(deliver_to_healthd(sys.stdin.buffer.read(), {path!r}))
except DeliveryError as error:
    print(error); sys.exit(9)
"""


@pytest.fixture
def controller() -> Iterator[StubController]:
    controller = StubController()
    yield controller
    controller.close()


@pytest.fixture
def node(make_node: Callable[..., Node], controller: StubController, tmp_path: Path) -> Node:
    log = tmp_path / "kernel.log"
    log.touch()
    node = make_node(kernel_log=log, remediator=controller.configuration(tmp_path))
    node.start()
    return node


def document(verdict: str, level: str = "gate", **more: object) -> bytes:
    result = {"test": "matmul_repeat", "outcome": verdict, "device": "cuda:0", "reason": "wrong bits"}
    said = {"version": 2, "level": level, "node": "n", "complete": True, "verdict": verdict, "results": [result]}
    return json.dumps(said | more).encode()


def test_a_failure_is_a_finding_at_the_controller_until_a_pass_disproves_it(
    node: Node, controller: StubController
) -> None:
    assert deliver_to_healthd(document("inconclusive"), str(node.socket)).startswith("healthd recorded it")
    assert "preflight/failed" not in node.findings()

    deliver_to_healthd(document("fail", started_at=1.0), str(node.socket))
    finding = node.findings()["preflight/failed"]  # durable before the answer came
    assert "wrong bits" in finding["summary"]
    assert node.verdict()["fit"] is False
    eventually(
        lambda: finding["id"] in controller.changes and controller.changes[finding["id"]].active,
        "the controller to hear it",
    )

    node.kill()
    node.start()
    assert "preflight/failed" in node.findings()

    deliver_to_healthd(document("pass", started_at=1.0), str(node.socket))
    assert "preflight/failed" in node.findings()  # that pass began before the failure
    deliver_to_healthd(document("pass", started_at=4e9), str(node.socket))
    assert "preflight/failed" not in node.findings()
    eventually(lambda: not controller.changes[finding["id"]].active, "the controller to hear of the pass")


def test_what_was_injected_says_so(node: Node) -> None:
    deliver_to_healthd(document("fail", injected=["matmul_repeat:nan"]), str(node.socket))
    assert node.findings()["preflight/failed"]["injected"] is True


def test_the_culprit_of_a_group_tells_its_healthd_and_the_others_do_not(node: Node, tmp_path: Path) -> None:
    words = ("--no-own-test", "--inject", "corrupt:n2", "--tell", "--socket", str(node.socket))
    group = Group(tmp_path, 3, *words, shared={"HEALTHD_GROUP_KEY": "0123456789abcdef"})
    try:
        assert [group.code(number) for number in range(3)] == [1, 1, 1], group.words(0)
        told = [number for number in range(3) if "healthd recorded it" in group.words(number)]
    finally:
        group.close()
    assert told == [2]
    finding = node.findings()["preflight/failed"]
    assert (finding["injected"], finding["evidence"]["level"]) == (True, "group")
    assert "wrong data" in finding["summary"]


def test_only_root_is_believed(node: Node) -> None:
    code = ASK_AS.format(uid=SOMEBODY, path=str(node.socket))
    for parent in (node.place, *node.place.parents):
        if parent.stat().st_uid == os.geteuid() and parent.name.startswith(("node", "test_", "pytest-", "popen-")):
            parent.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", code], input=document("fail"), capture_output=True, check=False)
    assert done.returncode == 9, done.stderr
    assert b"only root" in done.stdout
    assert "preflight/failed" not in node.findings()


def test_without_a_daemon_the_teller_is_told(tmp_path: Path) -> None:
    with pytest.raises(DeliveryError, match=r"cannot reach healthd at .*, or give --socket"):
        deliver_to_healthd(document("fail"), str(tmp_path / "none"))
