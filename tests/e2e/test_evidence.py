"""A healthd process is asked for evidence: by its controller, by a person, and with kill -9 in the middle of it."""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from healthd_node import Node, eventually
from stub_controller import StubController

from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from vocabulary.messages.evidence_bundle import EvidenceBundle
from vocabulary.messages.wire import decode_message
from vocabulary.order import Order, OrderKind, OrderState

MakeNode = Callable[..., Node]
HEALTHCTL = Path(sys.executable).with_name("healthctl")
ORDER_ID = "inc-1.d1.s0.0.collect_evidence.n1/with a slash"


@pytest.fixture
def controller() -> Iterator[StubController]:
    controller = StubController()
    yield controller
    controller.may_answer_evidence.set()
    controller.close()


def order(node: Node, **more: object) -> Order:
    now = time.time()
    base: dict[str, object] = {"id": ORDER_ID, "node": node.name, "issued_at": now, "expires_at": now + 120}
    return Order(kind=OrderKind.COLLECT_EVIDENCE, incident="inc-1", reason="a test", **(base | more))  # type: ignore[arg-type]  # by name


def test_the_controller_gets_what_led_up_to_the_order(
    make_node: MakeNode, controller: StubController, tmp_path: Path
) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=controller.configuration(tmp_path))
    node.start()
    beacon = Beacon.create(str(node.beacons), RankPlacement("j1", 2, 0, 8, 0, node.name))
    for step in range(5):
        beacon.begin_step(step)
        beacon.end_step()
    eventually(lambda: node.verdict()["health"] == "healthy", "a first sweep")
    node.xid(79, gpu=3)
    eventually(node.findings, "the line is read")
    controller.issue(order(node))
    answer = eventually(lambda: controller.ended(ORDER_ID), "the order's end")
    assert answer.state is OrderState.SUCCEEDED, answer.detail
    ((name, content),) = controller.evidence
    bundle = decode_message(gzip.decompress(content), EvidenceBundle)
    assert (name, bundle.order, bundle.node, bundle.incident) == (ORDER_ID, ORDER_ID, node.name, "inc-1")
    assert "Xid" in bundle.kernel_lines[-1].text
    hot = {series.component for series in bundle.series if series.name == "temperature"}
    assert len(hot) == len(bundle.gpus) == 8
    assert [step.step for step in bundle.ranks[0].steps] == [0, 1, 2, 3, 4]
    assert bundle.versions["driver"]
    assert any("healthd started" in missing.why for missing in bundle.missing)
    assert answer.data["bytes"] == len(content)
    assert Path(str(answer.data["file"])).read_bytes() == content
    beacon.close()


def test_a_kill_in_the_middle_of_the_upload_costs_nothing(
    make_node: MakeNode, controller: StubController, tmp_path: Path
) -> None:
    controller.may_answer_evidence.clear()
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=controller.configuration(tmp_path))
    node.start()
    node.kernel_says("kernel: the last words before it all ended")
    eventually(lambda: "healthd_kernel_records_total 1.0" in node.get("/metrics"), "the line is read")
    controller.issue(order(node))
    eventually(lambda: controller.evidence_begun, "it is being sent")
    node.kill()
    node.start()
    eventually(lambda: controller.evidence_begun > 1, "it is sent anew")
    assert controller.ended(ORDER_ID) is None, "it has not succeeded before the controller has it"
    controller.may_answer_evidence.set()
    answer = eventually(lambda: controller.ended(ORDER_ID), "the order's end")
    assert answer.state is OrderState.SUCCEEDED
    assert len({content for _, content in controller.evidence}) == 1, "the same bundle, however often it was sent"
    bundle = decode_message(gzip.decompress(controller.evidence[0][1]), EvidenceBundle)
    assert "last words" in bundle.kernel_lines[-1].text, "of before the kill"
    ended = [message for message in controller.heard if getattr(message, "state", None) is OrderState.SUCCEEDED]
    assert len(ended) == 1


def test_evidence_that_nobody_takes_expires_and_stays_on_the_node(
    make_node: MakeNode, controller: StubController, tmp_path: Path
) -> None:
    controller.may_answer_evidence.clear()
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=controller.configuration(tmp_path))
    node.start()
    controller.issue(order(node, expires_at=time.time() + 2))
    answer = eventually(lambda: controller.ended(ORDER_ID), "the order's end")
    assert answer.state is OrderState.EXPIRED
    assert gzip.decompress(Path(str(answer.data["file"])).read_bytes())


def test_a_person_asks_on_the_node(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log")
    node.start()
    eventually(lambda: node.verdict()["health"] == "healthy", "a sweep")
    out = tmp_path / "bundle.json"
    command = [str(HEALTHCTL), "node", "evidence", "--socket", str(node.socket)]
    done = subprocess.run([*command, "--out", str(out)], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == ""
    assert out.stat().st_mode & 0o777 == 0o600
    bundle = decode_message(out.read_bytes(), EvidenceBundle)
    assert (bundle.node, bundle.order, len(bundle.gpus)) == (node.name, "", 8)
    printed = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    assert decode_message(printed, EvidenceBundle).boot_id == bundle.boot_id


def test_without_a_daemon_there_is_one_clear_line(tmp_path: Path) -> None:
    command = [str(HEALTHCTL), "node", "evidence", "--socket", str(tmp_path / "none")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "check that healthd is running" in done.stderr
