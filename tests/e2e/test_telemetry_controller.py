"""One healthd and one remediator, both real: somebody looks at a node, and sees its last hour."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_process import Controller
from healthd_node import Node, eventually

MakeNode = Callable[..., Node]
USUAL_S = 1200.0  # so rarely that only the wish can be what makes the node tell


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    controller = Controller(tmp_path)
    yield controller
    if controller.process is not None and controller.process.poll() is None:
        controller.end(signal.SIGKILL)


@pytest.fixture
def node(make_node: MakeNode, controller: Controller, tmp_path: Path) -> Node:
    """A node that reports once an hour, and whose first report was taken."""
    token = tmp_path / "node.token"
    remediator = {"url": controller.url, "token_file": str(token), "report_interval_s": USUAL_S}
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=remediator)
    token.write_text(controller.issue("--node", node.name))
    controller.start()
    node.start()
    path = f"/v1/nodes/{node.name}"
    eventually(lambda: controller.call("GET", path, "ann").ok, lambda: f"it reports; its log: {node.log()}")
    eventually(lambda: node.verdict()["fit"], "its GPUs were read")
    return node


def look(controller: Controller, node: Node, wait_s: float = 0.0) -> dict[str, Any]:
    answer = controller.call("GET", f"/v1/nodes/{node.name}/telemetry?wait_s={wait_s}", "ann")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def hottest(view: dict[str, Any]) -> dict[int, float]:
    """The highest temperature of each GPU, °C."""
    return {each["gpu"]: max(each["values"]) for each in view["series"] if each["name"] == "temperature"}


def test_who_looks_at_a_node_sees_its_hour_and_what_comes_after(controller: Controller, node: Node) -> None:
    assert look(controller, node)["at"] is None, "it was not asked before"
    first = eventually(lambda: (view := look(controller, node, wait_s=5))["at"] and view, node.log)
    assert set(hottest(first)) == set(range(8))
    curve = next(each for each in first["series"] if (each["gpu"], each["name"]) == (0, "temperature"))
    assert curve["unit"] == "°C"
    assert len(curve["times"]) == len(curve["values"]) >= 1
    assert first["at"] - 60 <= curve["times"][-1] <= first["at"] + 1

    node.gpus("gpus 8", "temperature.5 93")
    eventually(lambda: hottest(look(controller, node)).get(5) == 93.0, "what became hot since is told")
    assert hottest(look(controller, node))[4] < 93.0

    controller.end(signal.SIGKILL)
    controller.start()
    again = eventually(lambda: (view := look(controller, node, wait_s=5))["at"] and view, node.log)
    assert hottest(again)[5] == 93.0, "a controller that knows nothing any more is told anew"
