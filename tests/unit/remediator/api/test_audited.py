"""Every route that changes something says so in the audit log, and whose doing it was."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from remediator.api.endpoint import Endpoint
from remediator.api.route_table import ENDPOINTS
from remediator.decisions.group_incidents import open_group_incident
from remediator.model.journal_records import BREAKER, Action, Incident, IncidentState, NodeRecord
from remediator.model.message_batch import DeliveredMessage
from remediator.model.plan_steps import Mode
from remediator.notifications.alert_settings import AlertSettings
from remediator.state.cluster_state import ClusterState
from remediator.store.journal import Journal
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.api.test_access_control import finding, report
from vocabulary.finding import Severity, finding_id
from vocabulary.messages.evidence_bundle import EVIDENCE_VERSION, EvidenceBundle
from vocabulary.messages.wire import encode_message
from vocabulary.order import Order, OrderKind

CHANGING = [endpoint for endpoint in ENDPOINTS if endpoint.method != "GET"]
DIGEST = "ab" * 32


def before(place: Path) -> None:
    """What another leader left: orders for n2, and an open breaker."""
    journal, now, state = Journal(f"sqlite:///{place}/r.db"), time.time(), ClusterState()
    state.put_node(NodeRecord(node="n2", since=now))
    waits = Incident(id="inc-2", node="n2", title="made for a test", opened_at=now, state=IncidentState.WAITING)
    state.put_incident(waits)
    for kind in (OrderKind.COLLECT_EVIDENCE, OrderKind.RUN_PREFLIGHT, OrderKind.RESET_GPU):
        order = Order(
            id=kind.value, kind=kind, node="n2", issued_at=now, expires_at=now + 600, incident=waits.id, reason="a test"
        )
        planned = Action(
            id=order.id, incident=waits.id, decision="d1", node="n2", verb=kind.value, planned_at=now,
            deadline=now + 600, order=order,
        )  # fmt: skip
        state.put_action(planned)
    open_group_incident(state, BREAKER, "breaker", "made for a test", (), now)
    journal.commit([], state.take_changes(), journal.lead())
    journal.close()


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Inside]:
    before(tmp_path)
    nobody_listens = AlertSettings(webhooks=("http://127.0.0.1:1/",))
    centre = Inside(tmp_path, Mode.APPROVE, alerts=nobody_listens)
    yield centre
    centre.close()


def asked(centre: Inside, endpoint: Endpoint) -> tuple[str, str, Any]:
    """Who calls a route, its path, and the body; what it needs is there."""
    incidents = centre.call("GET", "/v1/incidents", "vic").json()["incidents"]
    about = "n2" if endpoint.path.endswith(("resolve", "reopen")) else "n1"  # there a plan is under way, once approved
    incident = next((i["id"] for i in incidents if i["node"] == about), "none")
    path = endpoint.path.replace("{incident}", incident).replace("{node}", "n1")
    word = path.rpartition("/")[2]
    if word == "report":
        return "n1", path, report(findings=(LOST,))
    if word == "reports":
        more = replace(LOST, id=finding_id("n1", "xid", "79", LOST.component, "another"))
        body = report(findings=(LOST, more), seq=2)
        batch = [DeliveredMessage("n1", "report", body)]
        return "i1", path, msgspec.msgpack.encode(batch)
    if "{order" in path:
        kind = OrderKind.COLLECT_EVIDENCE if "evidence" in path else OrderKind.RUN_PREFLIGHT
        bundle = EvidenceBundle(
            version=EVIDENCE_VERSION, node="n2", boot_id="b", taken_at=2.0, from_at=1.0, order=kind.value
        )
        update = {"id": kind.value, "state": "succeeded", "at": 1.0}
        body = gzip.compress(encode_message(bundle)) if "evidence" in path else update
        return "n2", path.replace("{order:path}", kind.value).replace("n1", "n2"), body
    if word == "approve":
        waits = centre.call("GET", f"/v1/incidents/{incident}", "ann").json()["awaits"]
        return "ann", path, {"what": waits[0]["id"]}
    tokens = centre.call("GET", "/v1/tokens", "root").json()["tokens"]
    path = path.replace("{action:path}", OrderKind.RESET_GPU.value)
    for silence in centre.call("GET", "/v1/alerts/silences", "vic").json()["silences"]:
        path = path.replace("{silence}", silence["id"])
    path = path.replace("{token}", next(t["id"] for t in tokens if t["name"] == "vic"))
    bodies = {
        "enrol": ("join", {"node": "gpu-1", "digest": DIGEST}),
        "tokens": ("root", {"role": "viewer", "name": "eve"}),
        "rotate": ("root", {"role": "viewer", "name": "eve"}),
        "revoke": ("root", b""),
        "mode": ("ann", {"mode": "observe"}),
        "silences": ("ann", {"until": time.time() + 3600, "text": "why"}),
        "test": ("ann", {"receiver": "webhook-1"}),
    }
    return bodies.get(word, ("ann", {"text": "why"}))[0], path, bodies.get(word, ("ann", {"text": "why"}))[1]


LOST = replace(
    finding("n1"),
    id=finding_id("n1", "xid", "79", finding("n1").component, "o"),
    check="xid",
    code="79",
    severity=Severity.FATAL,
    first_seen=time.time(),
    last_seen=time.time(),
)


def test_every_change_is_in_the_audit_log_with_who_made_it(centre: Inside) -> None:
    """The table of routes is walked in an order in which each finds what it changes: an incident before it is resolved."""
    last = {
        "reset": -2,
        "report": -1,
        "end": 1,
        "mode": 1,
        "resolve": 1,
        "reopen": 2,
        "hold": 3,
        "release": 4,
        "cordon": 5,
        "uncordon": 6,
        "retire": 7,
        "unretire": 8,
        "revoke": 9,
    }
    silent = []
    told = [endpoint for endpoint in CHANGING if not endpoint.path.endswith("/heartbeat")]  # it changes nothing durable
    for endpoint in sorted(told, key=lambda e: last.get(e.path.rpartition("/")[2], 0)):
        seen = centre.journal.last_event()
        who, path, body = asked(centre, endpoint)
        answer = centre.call("POST", path, who, body)
        assert answer.status in {200, 204}, (path, answer)
        events = [event for _, event in centre.journal.events(seen, 1000)]
        names = {"join": "join secret gpu-*"}
        mine = [e for e in events if e.actor.startswith(names.get(who, who)) or e.node == {"i1": "n1"}.get(who, who)]
        if not mine:
            silent.append(f"{endpoint.method} {endpoint.path} by {who}: {[(e.kind, e.actor) for e in events]}")
    assert silent == []
