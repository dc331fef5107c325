"""One healthd and one remediator, both real: an order for evidence, from the journal to the journal."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from controller_process import Controller
from healthd_node import Node, eventually

from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from remediator.model.journal_records import Action, Incident, IncidentState, NodeRecord
from remediator.postmortem.postmortem_document import PostMortem
from remediator.state.cluster_state import ClusterState
from remediator.store.journal import Journal
from vocabulary.messages.evidence_bundle import BUNDLE_BYTES_MAX, EvidenceBundle
from vocabulary.messages.wire import decode_message, encode_message
from vocabulary.order import Order, OrderKind

MakeNode = Callable[..., Node]
HEALTHCTL = Path(sys.executable).with_name("healthctl")
INCIDENT = "inc-evidence"
ORDER_ID = f"{INCIDENT}.d1.s0.0.collect_evidence"


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    controller = Controller(tmp_path)
    yield controller
    if controller.process is not None and controller.process.poll() is None:
        controller.end(signal.SIGKILL)


def plan(place: Path, node: str, kind: OrderKind = OrderKind.COLLECT_EVIDENCE) -> None:
    """What a playbook would leave in the journal: an incident that waits for a person, and one order."""
    journal, now = Journal(f"sqlite:///{place}/r.db"), time.time()
    state = ClusterState()
    state.put_node(NodeRecord(node=node, since=now))
    state.put_incident(
        Incident(id=INCIDENT, node=node, title="made for a test", opened_at=now, state=IncidentState.WAITING)
    )
    order = Order(
        id=ORDER_ID, kind=kind, node=node, issued_at=now, expires_at=now + 120, incident=INCIDENT, reason="a test"
    )
    state.put_action(
        Action(
            id=ORDER_ID,
            incident=INCIDENT,
            decision="d1",
            node=node,
            verb=kind.value,
            planned_at=now,
            deadline=now + 120,
            order=order,
        )
    )
    journal.commit([], state.take_changes(), journal.lead())
    journal.close()


def bundle(node: str = "n1", order: str = ORDER_ID, version: int = 1) -> bytes:
    return gzip.compress(
        encode_message(EvidenceBundle(version=version, node=node, boot_id="b", taken_at=2.0, from_at=1.0, order=order))
    )


def test_an_order_in_the_journal_brings_the_evidence_into_it(
    make_node: MakeNode, controller: Controller, tmp_path: Path
) -> None:
    token = tmp_path / "node.token"
    remediator = {"url": controller.url, "token_file": str(token), "report_interval_s": 0.5}
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=remediator)
    token.write_text(controller.issue("--node", node.name))
    plan(tmp_path, node.name)
    node.start()
    controller.start()
    path = f"/v1/incidents/{INCIDENT}/evidence"
    (entry,) = eventually(lambda: controller.call("GET", path, "ann").json()["evidence"], "the evidence")
    assert (entry["order"], entry["node"], entry["incident"]) == (ORDER_ID, node.name, INCIDENT)
    found = decode_message(controller.call("GET", path, "ann", params={"order": ORDER_ID}).content, EvidenceBundle)
    assert (found.node, found.order, found.incident) == (node.name, ORDER_ID, INCIDENT)
    incident = f"/v1/incidents/{INCIDENT}"
    eventually(
        lambda: controller.call("GET", incident, "ann").json()["actions"][0]["state"] == "succeeded", "the answer"
    )
    controller.end(signal.SIGKILL)
    controller.start()
    assert controller.call("GET", path, "ann").json()["evidence"] == [entry], "it is durable"


def test_only_ordered_evidence_of_the_node_itself_is_taken(controller: Controller, tmp_path: Path) -> None:
    plan(tmp_path, "n1")
    controller.start()
    path = f"/v1/nodes/n1/evidence/{ORDER_ID}"
    bomb = gzip.compress(b" " * (64 << 20))
    for body, who, at, status in (
        (bundle(), "n2", path, 403),
        (bundle(), "ann", path, 403),
        (bundle(), "nobody", path, 401),
        (bundle("n2"), "n2", f"/v1/nodes/n2/evidence/{ORDER_ID}", 404),
        (bundle(order="another"), "n1", "/v1/nodes/n1/evidence/another", 404),
        (bundle(order="another"), "n1", path, 403),
        (bundle("n2"), "n1", path, 403),
        (bundle(version=99), "n1", path, 400),
        (b"{}", "n1", path, 400),
        (gzip.compress(b"{}"), "n1", path, 400),
        (bomb, "n1", path, 413),
        (b"\0" * (BUNDLE_BYTES_MAX + 1), "n1", path, 413),
    ):
        answer = controller.call("POST", at, who, data=body)
        assert answer.status_code == status, answer.text
        assert answer.json()["error"]
    assert controller.call("POST", path, "n1", data=bundle()).status_code == 204
    assert controller.call("POST", path, "n1", data=bundle()).status_code == 204, "a repetition does no harm"
    listed = f"/v1/incidents/{INCIDENT}/evidence"
    assert len(controller.call("GET", listed, "ann").json()["evidence"]) == 1
    assert controller.call("GET", listed, "n1").status_code == 403
    assert controller.call("GET", listed, "ann", params={"order": "none"}).status_code == 404
    assert controller.call("GET", "/healthz", "nobody").ok


def test_an_order_for_something_else_brings_no_evidence(controller: Controller, tmp_path: Path) -> None:
    plan(tmp_path, "n1", OrderKind.RUN_PREFLIGHT)
    controller.start()
    answer = controller.call("POST", f"/v1/nodes/n1/evidence/{ORDER_ID}", "n1", data=bundle())
    assert (answer.status_code, "does not request evidence" in answer.json()["error"]) == (400, True)


def test_an_incident_is_told_afterwards_in_every_form(
    make_node: MakeNode, controller: Controller, tmp_path: Path
) -> None:
    """A fault, the shipped playbook, evidence of the node itself, and what a person reads of it."""
    token, operator = tmp_path / "node.token", tmp_path / "operator.token"
    remediator = {"url": controller.url, "token_file": str(token), "report_interval_s": 0.5}
    node = make_node(kernel_log=tmp_path / "kern.log", remediator=remediator)
    token.write_text(controller.issue("--node", node.name))
    operator.write_text(controller.tokens["ann"])
    controller.start()
    node.start()
    job = "<script>alert(1)</script>|{{7*7}}`\x1b[2J"
    rank = Beacon.create(str(node.beacons), RankPlacement(job, 1, 0, 8, 0, node.name))
    for step in range(30):
        rank.begin_step(step)
        rank.end_step()
    eventually(lambda: node.verdict()["health"] == "healthy", "a first sweep")
    node.xid(79, gpu=3)
    listed = eventually(lambda: controller.call("GET", "/v1/incidents", "ann").json()["incidents"], "an incident")
    path = f"/v1/incidents/{listed[0]['id']}"
    eventually(lambda: controller.call("GET", f"{path}/evidence", "ann").json()["evidence"], "the evidence")

    said = decode_message(
        controller.call("GET", f"{path}/postmortem", "ann", params={"format": "json"}).content, PostMortem
    )
    assert (said.node, said.injected, said.cause.blame) == (node.name, True, "pcie")
    assert {chart.title for chart in said.charts} >= {"temperature", "power", "SM clock", "time of a training step"}
    assert any("Xid" in line.text for line in said.kernel_lines)
    assert said.ranks[0].job == job
    assert {"incident_opened", "decision"} <= {entry.kind for entry in said.timeline}

    command = [str(HEALTHCTL), "incidents", "postmortem", listed[0]["id"]]
    asked = [*command, "--server", controller.url, "--token-file", str(operator)]
    markdown = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=60).stdout
    page = tmp_path / "incident.html"
    subprocess.run([*asked, "--out", str(page)], check=True, capture_output=True, timeout=60)
    html = page.read_text()
    assert markdown.startswith("# xid/79 on GPU 3")
    assert html.startswith("<!DOCTYPE html>")
    for text in (markdown, html):
        assert "<script" not in text
        assert "\x1b" not in text
        assert "7*7" in text.replace("\\", ""), "told, not calculated"

    answer = controller.call("GET", f"{path}/postmortem", "ann", params={"format": "html"})
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Content-Security-Policy"] == "sandbox"
    for where, who, status in (
        (f"{path}/postmortem", "n1", 403),
        (f"{path}/postmortem", "nobody", 401),
        (f"{path}/postmortem?format=pdf", "ann", 400),
        ("/v1/incidents/none/postmortem", "ann", 404),
    ):
        assert controller.call("GET", where, who).status_code == status
    rank.close()
