"""Invariant 7: no credential of a node can speak for another node, or act; nothing unauthenticated changes anything."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from remediator.api.access_control import Access, is_access_allowed
from remediator.api.endpoint import Endpoint
from remediator.api.route_table import ENDPOINTS
from remediator.model.credentials import Identity, Role
from tests.unit.remediator.api.in_process_controller import Inside
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.message_bounds import MOMENT_MAX
from vocabulary.messages.wire import FindingChange, Report, encode_message

HOLDERS = ("", "nonsense", "vic", "ann", "root", "n1", "n2", "i1", "join")
MAY = {
    Access.ANYONE: set(HOLDERS),
    Access.JOIN: {"join"},
    Access.NODE: {"n1"},
    Access.JOB: {"vic", "ann", "root", "n1", "n2"},
    Access.VIEWER: {"vic", "ann", "root"},
    Access.OPERATOR: {"ann", "root"},
    Access.ADMIN: {"root"},
    Access.INGEST: {"i1"},
}
GPU = Component(ComponentKind.GPU, "GPU-1")


def path_of(endpoint: Endpoint) -> str:
    words = {"node": "n1", "order:path": "x", "order": "x", "job:path": "none", "incident": "none", "token": "none"}
    path = endpoint.path
    for name, word in words.items():
        path = path.replace("{" + name + "}", word)
    return path


@pytest.mark.parametrize("who", HOLDERS)
@pytest.mark.parametrize(
    "endpoint", [e for e in ENDPOINTS if e.answer != "text/event-stream"], ids=lambda e: f"{e.method} {e.path}"
)
def test_every_route_lets_in_whom_its_rule_names_and_nobody_else(shared: Inside, endpoint: Endpoint, who: str) -> None:
    answer = shared.call(endpoint.method, path_of(endpoint), who, b"\xff" if endpoint.method == "POST" else b"")
    if who in MAY[endpoint.access]:
        assert answer.status not in {401, 500} or endpoint.access is Access.ANYONE
        if answer.status == 403:
            assert "has no rank" in answer.json()["error"]
    else:
        assert answer.status == (401 if who in {"", "nonsense"} else 403)
        assert answer.json()["error"]


def test_the_rule_itself_by_every_role() -> None:
    for access, role, node in itertools.product(Access, Role, (None, "n1", "n2")):
        let = is_access_allowed(access, Identity(role, "n1"), node)
        if role is Role.NODE:
            assert let is ((access is Access.NODE and node == "n1") or access is Access.JOB)
        if role is Role.JOIN:
            assert let is (access is Access.JOIN)
        assert let is (access is Access.INGEST) or Role.INGEST is not role
        if let and access in {Access.VIEWER, Access.OPERATOR, Access.ADMIN}:
            assert role in {Role.VIEWER, Role.OPERATOR, Role.ADMIN}


def test_every_change_needs_more_than_looking(shared: Inside) -> None:
    for endpoint in ENDPOINTS:
        if endpoint.method != "GET":
            assert endpoint.access not in {Access.ANYONE, Access.VIEWER, Access.JOB}, endpoint.path


def finding(node: str, name: str = "o") -> Finding:
    return Finding(
        id=finding_id(node, "row_remap", "pending", GPU, name),
        node=node,
        check="row_remap",
        code="pending",
        component=GPU,
        severity=Severity.ERROR,
        summary="a row waits to be remapped",
        first_seen=1.0,
        last_seen=1.0,
        origin=name,
    )


def report(node: str = "n1", seq: int = 1, findings: tuple[Finding, ...] = (), **more: Any) -> bytes:
    plain = Report(
        version=1,
        node=node,
        boot_id="b",
        agent="a",
        seq=seq,
        sent_at=time.time(),
        ttl_s=30,
        health=Health.HEALTHY,
        changes=tuple(FindingChange(n + 1, f) for n, f in enumerate(findings)),
        active=findings,
    )
    return encode_message(replace(plain, **more))


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Inside]:
    centre = Inside(tmp_path)
    yield centre
    centre.close()


def told(centre: Inside, body: bytes, who: str = "n1", node: str = "n1") -> int:
    return centre.call("POST", f"/v1/nodes/{node}/report", who, body).status


def incidents(centre: Inside) -> list[str]:
    return [i["node"] for i in centre.call("GET", "/v1/incidents", "ann").json()["incidents"]]


def test_a_node_that_lies_about_being_another_is_refused_and_changes_nothing(centre: Inside) -> None:
    lies = [
        (report("n2"), "n1"),  # in the body
        (report("n1", findings=(finding("n2"),)), "n1"),  # in a finding
        (report("n2"), "n2"),  # in the path
    ]
    for body, node in lies:
        assert told(centre, body, node=node) == 403
    assert told(centre, report("n1", findings=(finding("n1"),))) == 200
    stolen = replace(finding("n2"), id=finding("n1").id)  # another node's finding by its id
    assert told(centre, report("n2", findings=(stolen,)), "n2", "n2") == 200
    assert incidents(centre) == ["n1"]
    update = {"id": "x", "state": "succeeded", "at": 1.0}
    assert centre.call("POST", "/v1/nodes/n1/orders/x", "n2", update).status == 403


def test_duplicated_reordered_and_old_reports_change_nothing_twice(centre: Inside) -> None:
    new = report(seq=5, findings=(finding("n1"),))
    old = report(seq=4, findings=())
    for body in (new, new, old, new, old):
        assert told(centre, body) == 200
    assert incidents(centre) == ["n1"]
    assert [f.get("active", True) for f in centre.call("GET", "/v1/nodes/n1", "ann").json()["findings"]]


@pytest.mark.parametrize(
    "when",
    [0.0, time.time() - 7 * 86400.0, time.time() + 7 * 86400.0, MOMENT_MAX],
    ids=["1970", "a week ago", "in a week", "the latest moment"],  # the same name in every worker
)
def test_a_week_old_or_future_report_is_judged_by_when_it_came(centre: Inside, when: float) -> None:
    odd = replace(finding("n1"), first_seen=when, last_seen=when)
    assert told(centre, report(sent_at=when, findings=(odd,))) == 200
    node = centre.call("GET", "/v1/nodes/n1", "ann").json()
    assert abs(node["last_seen"] - time.time()) < 600
    assert told(centre, report(seq=2, findings=(odd,))) == 200
    assert len(incidents(centre)) <= 1
    assert centre.service.engine.alive


def test_requests_without_a_good_token_change_nothing(centre: Inside) -> None:
    before = list(centre.journal.engine.raw_connection().driver_connection.iterdump())  # type: ignore[union-attr]  # sqlite3's
    for endpoint in ENDPOINTS:
        if endpoint.access is not Access.ANYONE:
            for who in ("", "ghd_" + "x" * 43, "join" if endpoint.access is not Access.JOIN else ""):
                body = report() if "report" in endpoint.path else json.dumps({"text": "x"}).encode()
                assert centre.call(endpoint.method, path_of(endpoint), who, body).status in {401, 403}
    after = list(centre.journal.engine.raw_connection().driver_connection.iterdump())  # type: ignore[union-attr]  # sqlite3's
    assert [line for line in after if "audit" in line or "nodes" in line or "tokens" in line] == [
        line for line in before if "audit" in line or "nodes" in line or "tokens" in line
    ]
