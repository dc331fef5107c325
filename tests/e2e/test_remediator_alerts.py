"""A real remediator process tells real receivers: what is the matter, through a kill -9, and that it is over."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_process import Controller
from msgspec.structs import replace

from tests.unit.remediator.act.webhooks.peer import Peer, until
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import FindingChange, Report, encode_message

GPU = Component(ComponentKind.GPU, "GPU-1", "0000:3b:00.0", 0)
KEY = bytes(range(32))
POLICY = """
playbook: 1
rules:
  - name: look-at-it
    why: everything is shown to people
    steps: [{alert: please look}, watch]
"""


@pytest.fixture
def peer() -> Iterator[Peer]:
    server = Peer()
    yield server
    server.close()


@pytest.fixture
def controller(tmp_path: Path, peer: Peer) -> Iterator[Controller]:
    (tmp_path / "keys").write_text(f"whsec_{base64.b64encode(KEY).decode()}\n")
    (tmp_path / "policy.yaml").write_text(POLICY)
    controller = Controller(tmp_path)
    alerts = {
        "public_url": "https://healthd.example",
        "receivers": {"hook": {"kind": "webhook", "url": peer.url, "keys_file": str(tmp_path / "keys"), "group_s": 0}},
        "heartbeat": {"url": peer.url.replace("secret", "heartbeat"), "every_s": 1},
    }
    with controller.config.open("a") as config:
        config.write(f"playbooks: [{tmp_path / 'policy.yaml'}]\nalerts: {json.dumps(alerts)}\n")
    controller.start()
    yield controller
    if controller.process is not None and controller.process.poll() is None:
        controller.end(signal.SIGKILL)


def fault() -> Finding:
    return Finding(
        id=finding_id("n1", "xid", "79", GPU, "o"),
        node="n1",
        check="xid",
        code="79",
        component=GPU,
        severity=Severity.FATAL,
        summary="fell off",
        first_seen=time.time(),
        last_seen=time.time(),
        origin="o",
    )


def report(controller: Controller, seq: int, finding: Finding) -> None:
    body = Report(
        version=1,
        node="n1",
        boot_id="b",
        agent="a",
        seq=seq,
        sent_at=time.time(),
        ttl_s=30,
        health=Health.HEALTHY,
        changes=(FindingChange(seq, finding),),
        active=(finding,) if finding.active else (),
        ranks=(),
    )
    controller.call("POST", "/v1/nodes/n1/report", "n1", data=encode_message(body)).raise_for_status()


def alerts(peer: Peer) -> list[dict[str, Any]]:
    """What the hook was told, each proved to be from us."""
    found = []
    for path, headers, body in list(peer.got):
        if path != "/secret-path":
            continue
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        digest = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{digest}"
        found.extend({**alert, "webhook": headers["webhook-id"]} for alert in json.loads(body)["data"]["alerts"])
    return found


def test_people_hear_what_is_the_matter_once_and_that_it_is_over(controller: Controller, peer: Peer) -> None:
    until(lambda: [path for path, _, _ in peer.got if path == "/heartbeat-path"])
    peer.status = 503
    report(controller, 1, fault())
    first = until(lambda: alerts(peer))[0]
    controller.end(signal.SIGKILL)
    peer.status = 200
    controller.start()
    until(lambda: len(alerts(peer)) >= 2)
    assert {alert["webhook"] for alert in alerts(peer)} == {first["webhook"]}
    assert (first["node"], first["severity"], first["text"], first["phase"]) == ("n1", "fatal", "please look", "fire")
    assert first["link"] == f"https://healthd.example/incidents/{first['incident']}"
    report(controller, 2, replace(fault(), active=False, cleared_at=time.time(), cleared_by="a test"))
    over = until(lambda: [alert for alert in alerts(peer) if alert["phase"] == "resolve"])
    assert [alert["incident"] for alert in over] == [first["incident"]]
