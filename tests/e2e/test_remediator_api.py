"""A real remediator process, asked over real HTTP, by those who may and those who may not."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
import time

from controller_process import Controller
from healthd_node import eventually

from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import REPORT_BYTES_MAX, FindingChange, RankStatus, Report, encode_message
from vocabulary.order import OrderState, OrderUpdate

GPU = Component(ComponentKind.GPU, "GPU-1", "0000:3b:00.0", 0)


def report(node: str = "n1", seq: int = 1, findings: tuple[Finding, ...] = (), jobs: tuple[str, ...] = ()) -> bytes:
    ranks = tuple(RankStatus(job, 0, 0, 1, 1, 5, "step", time.time()) for job in jobs)
    changes = tuple(FindingChange(n + 1, finding) for n, finding in enumerate(findings))
    return encode_message(
        Report(
            version=1,
            node=node,
            boot_id="b",
            agent="a",
            seq=seq,
            sent_at=time.time(),
            ttl_s=30,
            health=Health.HEALTHY,
            changes=changes,
            active=tuple(f for f in findings if f.active),
            ranks=ranks,
        )
    )


def pending(node: str = "n1") -> Finding:
    return Finding(
        id=finding_id(node, "row_remap", "pending", GPU, "o"),
        node=node,
        check="row_remap",
        code="pending",
        component=GPU,
        severity=Severity.ERROR,
        summary="a row waits to be remapped",
        first_seen=1.0,
        last_seen=1.0,
        origin="o",
    )


WHO_MAY_DO_WHAT = [
    ("GET", "/v1/status", "nobody", 401),
    ("GET", "/v1/status", "n1", 403),
    ("GET", "/v1/status", "ann", 200),
    ("GET", "/v1/nodes/none", "ann", 404),
    ("GET", "/v1/incidents/none", "ann", 404),
    ("GET", "/v1/events?after=x", "ann", 400),
    ("GET", "/v1/nodes/n1/orders", "n2", 403),
    ("GET", "/v1/nodes/n1/orders", "ann", 403),
    ("GET", "/v1/nodes/n1/orders?wait_s=1e9", "n1", 400),
    ("POST", "/v1/nodes/n1/report", "n2", 403),
    ("POST", "/v1/nodes/n1/report", "n1", 400),
    ("POST", "/v1/nodes/n1/orders/x", "n1", 400),
    ("GET", "/nowhere", "ann", 404),
    ("DELETE", "/v1/status", "ann", 405),
    ("GET", "/metrics", "nobody", 200),
]


def test_who_may_do_what(controller: Controller) -> None:
    for method, path, who, status in WHO_MAY_DO_WHAT:
        answer = controller.call(method, path, who, data=b"{}" if method == "POST" else None)
        assert answer.status_code == status, (method, path, who)
        assert status < 400 or answer.json()["error"]


def test_a_token_from_a_command_of_its_own_is_good(controller: Controller) -> None:
    command = [
        sys.executable,
        "-m",
        "remediator",
        "token",
        "issue",
        "--viewer",
        "bob",
        "--config",
        str(controller.config),
    ]
    token = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    eventually(lambda: controller.call("GET", "/v1/status", token).ok, "the controller takes the new token")


def test_a_node_cannot_report_on_another(controller: Controller) -> None:
    for body in (report("n2"), report("n1", findings=(pending("n2"),))):
        answer = controller.call("POST", "/v1/nodes/n1/report", "n1", data=body)
        assert answer.status_code == 403, answer.text
    assert controller.call("GET", "/v1/nodes", "ann").json()["nodes"] == []


def test_an_oversized_report_is_refused(controller: Controller) -> None:
    assert controller.call("POST", "/v1/nodes/n1/report", "n1", data=b" " * (REPORT_BYTES_MAX + 1)).status_code == 413


def test_an_acknowledged_finding_survives_kill_9_and_is_acted_on_once(controller: Controller) -> None:
    body = report(findings=(pending(),), jobs=("j1",))
    assert controller.call("POST", "/v1/nodes/n1/report", "n1", data=body).json()["acked_seq"] == 1
    controller.end(signal.SIGKILL)
    controller.start()
    orders = controller.call("GET", "/v1/nodes/n1/orders?wait_s=10", "n1").json()["orders"]
    assert [o["kind"] for o in orders] == ["checkpoint_then_eject", "collect_evidence"]
    assert controller.call("POST", "/v1/nodes/n1/report", "n1", data=body).json() == {
        "acked_seq": 1,
        "epoch": 2,
        "base": 1,
    }
    assert len(controller.call("GET", "/v1/incidents", "ann").json()["incidents"]) == 1
    update = OrderUpdate(id=orders[0]["id"], state=OrderState.SUCCEEDED, at=time.time(), detail="saved")
    assert (
        controller.call("POST", f"/v1/nodes/n1/orders/{update.id}", "n1", data=encode_message(update)).status_code
        == 204
    )
    assert update.id not in [o["id"] for o in controller.call("GET", "/v1/nodes/n1/orders", "n1").json()["orders"]]


def test_an_order_poll_waits_for_what_the_node_does_not_know_yet(controller: Controller) -> None:
    controller.call("POST", "/v1/nodes/n1/report", "n1", data=report(findings=(pending(),), jobs=("j1",)))
    known = [o["id"] for o in controller.call("GET", "/v1/nodes/n1/orders?wait_s=10", "n1").json()["orders"]]
    before = time.monotonic()
    query = "&".join(f"known={order}" for order in known)
    answer = controller.call("GET", f"/v1/nodes/n1/orders?wait_s=0.5&{query}", "n1").json()
    assert time.monotonic() - before >= 0.5
    assert [o["id"] for o in answer["orders"]] == known


def test_the_audit_log_can_be_followed(controller: Controller) -> None:
    controller.call("POST", "/v1/nodes/n1/report", "n1", data=report(findings=(pending(),)))
    seen = controller.call("GET", "/v1/events?after=3&wait_s=10", "ann").json()["events"]  # three tokens were issued
    assert [e["kind"] for e in seen][:3] == ["policy", "node_joined", "finding_raised"]
    last = controller.call("GET", f"/v1/events?after={10**6}", "ann").json()["events"]
    assert last == []


def test_a_second_remediator_on_the_same_database_refuses_to_start(controller: Controller) -> None:
    command = [sys.executable, "-m", "remediator", "serve", "--config", str(controller.config)]
    second = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert second.returncode == 1
    assert "another controller holds" in second.stderr


def test_told_to_stop_it_answers_open_polls_and_ends_well(controller: Controller) -> None:
    assert controller.process is not None
    poll = http.client.HTTPConnection("127.0.0.1", controller.port, timeout=20)
    poll.request("GET", "/v1/nodes/n1/orders?wait_s=60", headers={"Authorization": f"Bearer {controller.tokens['n1']}"})
    assert controller.call("GET", "/healthz", "nobody").ok  # so the request before it has been taken in
    controller.end(signal.SIGTERM)
    assert poll.getresponse().status == 200
    poll.close()
    assert controller.process.returncode == 0
