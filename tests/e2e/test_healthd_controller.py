"""A healthd process and its controller: reports, outages, tokens, orders, and kill -9 in between."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from healthd_node import Node, eventually
from stub_controller import StubController

from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from healthd.trainer.beacons.beacon_page import Acknowledgement, MailboxOrder, OrderOutcome
from vocabulary.health import Health
from vocabulary.messages.wire import Report
from vocabulary.order import Order, OrderKind, OrderState

MakeNode = Callable[..., Node]


@pytest.fixture
def controller() -> Iterator[StubController]:
    controller = StubController()
    yield controller
    controller.close()


def order(kind: OrderKind, node: Node, **more: object) -> Order:
    now = time.time()
    base = {"id": f"o-{kind.value}", "node": node.name, "issued_at": now, "expires_at": now + 120}
    return Order(kind=kind, incident="i1", reason="a test", **(base | more))  # type: ignore[arg-type]  # by name


def preflight_that(script: str) -> dict[str, list[str]]:
    return {"preflight_command": [sys.executable, "-c", script, "{level}"]}


PASS = 'import json; print(json.dumps({"verdict": "pass", "complete": True}, indent=2))'


def test_a_finding_is_reported_at_once_and_state_is_asserted_again_and_again(
    make_node: MakeNode, controller: StubController, tmp_path: Path
) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=controller.configuration(tmp_path))
    node.start()
    eventually(
        lambda: any(r.health is Health.HEALTHY and len(r.gpus) == 8 for r in controller.reports), "a healthy report"
    )
    node.xid(79, gpu=3)
    eventually(lambda: any(f.kind == "xid/79" for f in controller.changes.values()), "the change")
    last = eventually(lambda: [r for r in controller.reports if r.active], "the assertion")[-1]
    assert last.health is Health.UNHEALTHY
    assert {f.kind for f in last.active} == {"xid/79"}
    seen = len(controller.reports)
    eventually(lambda: len(controller.reports) > seen + 2, "it goes on")
    assert not controller.reports[-1].changes, "what is acknowledged is not sent again"
    assert "healthd_outbox_waiting_changes 0.0" in node.get("/metrics")


def test_an_outage_loses_nothing(make_node: MakeNode, tmp_path: Path) -> None:
    gone = StubController()
    gone.close()
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=gone.configuration(tmp_path))
    node.start()
    for gpu in range(4):
        node.xid(79, gpu)
    eventually(lambda: len(node.findings()) == 4, "four findings")
    node.kill()
    node.start()
    back = StubController(gone.port)
    try:
        eventually(lambda: len(back.changes) == 4, "all four, once the controller is back")
    finally:
        back.close()


def test_a_node_whose_controller_is_dead_goes_on_and_tells_it_all_when_it_is_back(
    make_node: MakeNode, tmp_path: Path
) -> None:
    gone = StubController()
    gone.close()
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=gone.configuration(tmp_path))
    node.start()
    node.xid(79, gpu=0)
    eventually(lambda: "report not delivered" in node.log(), node.log)
    node.xid(79, gpu=1)
    eventually(lambda: len(node.findings()) == 2, "what comes up meanwhile is known")
    back = StubController(gone.port)
    try:
        eventually(lambda: len(back.changes) == 2, lambda: f"both, from the same process; its log: {node.log()}")
    finally:
        back.close()


def test_a_wrong_token_is_named_and_loses_nothing(
    make_node: MakeNode, controller: StubController, tmp_path: Path
) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=controller.configuration(tmp_path, token="another"))
    node.start()
    node.xid(79, gpu=0)
    eventually(lambda: "401: this token is not known" in node.log(), node.log)
    assert not controller.heard
    node.stop()
    controller.configuration(tmp_path)
    node.start()
    eventually(lambda: len(controller.changes) == 1, "the finding, with the right token")


def test_a_passed_preflight_clears_the_node_and_is_heard_after_what_it_cleared(
    make_node: MakeNode, controller: StubController, tmp_path: Path
) -> None:
    config = controller.configuration(tmp_path)
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=config, orders=preflight_that(PASS))
    node.start()
    node.xid(79, gpu=3)
    controller.issue(order(OrderKind.ABORT, node, job="nobody's", condemned=(node.name,)))
    eventually(lambda: controller.ended("o-abort"), "an abort without ranks")
    assert node.verdict()["condemned"] is True
    controller.issue(order(OrderKind.RUN_PREFLIGHT, node, level="gate"))
    answer = eventually(lambda: controller.ended("o-run_preflight"), "the result")
    assert (answer.state, answer.data["verdict"]) == (OrderState.SUCCEEDED, "pass")
    cleared = next(finding for finding in controller.changes.values() if finding.kind == "xid/79")
    assert (cleared.active, cleared.cleared_by) == (False, "preflight o-run_preflight")
    before = controller.heard[: controller.heard.index(answer)]
    assert any(isinstance(m, Report) and any(not c.finding.active for c in m.changes) for m in before)
    eventually(lambda: node.verdict()["fit"], "fit again")
    assert not node.findings()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ('print(\'{"verdict": "fail", "reason": "pattern 3 on GPU 1"}\'); raise SystemExit(1)', "pattern 3 on GPU 1"),
        ("raise SystemExit(0)", "no verdict"),
        ('print(\'{"verdict": "pass"}\'); raise SystemExit(3)', "exit 3"),
        ('print(\'{"verdict": "pass", "complete": false}\')', "pass"),
    ],
)
def test_anything_but_a_clear_pass_is_no_pass(
    make_node: MakeNode, controller: StubController, tmp_path: Path, script: str, why: str
) -> None:
    config = controller.configuration(tmp_path)
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=config, orders=preflight_that(script))
    node.start()
    node.xid(79, gpu=3)
    eventually(node.findings, "the finding")
    controller.issue(order(OrderKind.RUN_PREFLIGHT, node))
    answer = eventually(lambda: controller.ended("o-run_preflight"), "the result")
    assert answer.state is OrderState.FAILED
    assert why in answer.detail
    assert node.findings()


def test_an_order_survives_kill_nine_and_ends_once(
    make_node: MakeNode, controller: StubController, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    starts = tmp_path / "starts"
    script = (
        f"import time, pathlib; open({str(starts)!r}, 'a').write('x')\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.02)\n{PASS}"
    )
    config = controller.configuration(tmp_path)
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=config, orders=preflight_that(script))
    node.start()
    controller.issue(order(OrderKind.RUN_PREFLIGHT, node))
    eventually(lambda: starts.exists() and controller.answer("o-run_preflight"), "it runs")
    node.kill()
    node.start()
    eventually(lambda: len(starts.read_text()) == 2, "it runs again, from its start")
    go.touch()
    answer = eventually(lambda: controller.ended("o-run_preflight"), "its end")
    assert answer.state is OrderState.SUCCEEDED
    node.kill()
    node.start()
    eventually(lambda: len(controller.reports) and node.verdict()["fit"], "up again")
    assert starts.read_text() == "xx", "what has ended is not done again"


def test_what_the_node_does_not_allow_is_refused_with_its_reason(
    make_node: MakeNode, controller: StubController, tmp_path: Path
) -> None:
    config = controller.configuration(tmp_path)
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=config, orders={"allow": ["abort"]})
    node.start()
    controller.issue(order(OrderKind.RESET_GPU, node, gpu="GPU-fake-0001"))
    controller.issue(order(OrderKind.ABORT, node, job="j", expires_at=time.time() - 1))
    refused = eventually(lambda: controller.ended("o-reset_gpu"), "a no")
    assert refused.state is OrderState.REFUSED
    assert "orders.allow does not list reset_gpu" in refused.detail
    late = eventually(lambda: controller.ended("o-abort"), "too late")
    assert late.state is OrderState.EXPIRED


def test_a_gpu_reset_runs_while_the_driver_rests_and_clears_that_gpu_only(
    make_node: MakeNode, controller: StubController, tmp_path: Path
) -> None:
    script = (
        "import os, sys, pathlib\n"
        "children = [p for p in pathlib.Path('/proc').glob('[0-9]*/cmdline')\n"
        "            if b'nvml' b'_child' in p.read_bytes() and f'PPid:\\t{os.getppid()}\\n' in (p.parent / 'status').read_text()]\n"
        "sys.exit(len(children) and 7)"
    )
    orders = {"reset_gpu_command": [sys.executable, "-c", script, "{gpu}"]}
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=controller.configuration(tmp_path), orders=orders)
    node.start()
    eventually(lambda: node.verdict()["fit"], "a first sweep")
    node.xid(95, gpu=1)
    node.xid(95, gpu=2)
    eventually(lambda: len(node.findings()) == 2, "two findings")
    controller.issue(order(OrderKind.RESET_GPU, node, gpu="GPU-fake-0001"))
    answer = eventually(lambda: controller.ended("o-reset_gpu"), "the reset")
    assert answer.state is OrderState.SUCCEEDED, answer.detail
    eventually(lambda: set(node.findings()) == {"xid/95@2"}, "only that GPU's finding is cleared")
    eventually(lambda: "NVML" not in str(node.verdict()["reasons"]), "the driver is asked again")


def test_ranks_get_a_checkpoint_order_and_their_answers_go_up(
    make_node: MakeNode, controller: StubController, tmp_path: Path
) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=controller.configuration(tmp_path))
    node.start()
    ranks = [Beacon.create(str(node.beacons), RankPlacement("j1", 2, rank, 2, rank, node.name)) for rank in (0, 1)]
    bystander = Beacon.create(str(node.beacons), RankPlacement("j2", 1, 0, 1, 0, node.name))
    eventually(lambda: any(len(r.ranks) == 3 for r in controller.reports), "the ranks are reported")
    issued = time.time()
    controller.issue(order(OrderKind.CHECKPOINT_THEN_EJECT, node, job="j1", condemned=("other",)))
    mailed = [eventually(rank.poll, "the order in the mailbox") for rank in ranks]
    assert {(m.id, m.kind, m.condemned) for m in mailed} == {
        ("o-checkpoint_then_eject", "checkpoint_then_eject", ("other",))
    }
    assert bystander.poll() is None
    assert node.verdict()["condemned"] is False
    node.kill()
    for rank in ranks:
        rank.acknowledge(Acknowledgement(mailed[0].id, OrderOutcome.AGREED, issued, 7, issued + 1))
    node.start()
    running = eventually(
        lambda: (a := controller.answer(mailed[0].id)) is not None and "agreed_step" in a.data and a, "the agreement"
    )
    assert running.state is OrderState.RUNNING
    for number, rank in enumerate(ranks):
        done = Acknowledgement(
            mailed[0].id, OrderOutcome.LEFT, issued, 7, issued + 1, issued + 2 + number, "/ckpt/7", issued + 4 + number
        )
        rank.acknowledge(done)
    answer = eventually(lambda: controller.ended(mailed[0].id), "the end")
    assert answer.state is OrderState.SUCCEEDED, answer.detail
    wanted = {"agreed_step": 7, "saved_at": issued + 3, "left_at": issued + 5, "path": "/ckpt/7", "ranks": 2}
    assert answer.data.items() >= wanted.items()
    assert answer.data["mailbox_at"] >= issued
    again: MailboxOrder | None = ranks[0].poll()
    assert again is None, "a restart does not order twice"
    for beacon in (*ranks, bystander):
        beacon.close()
