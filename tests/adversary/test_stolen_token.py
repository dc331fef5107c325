"""Whoever has the token of one node tries everything with it, for another node and for the cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remediator.api.openapi_document import build_openapi_document
from remediator.model.credentials import Role
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.api.test_access_control import report

OPEN = {"/healthz", "/livez", "/metrics", "/v1/openapi.json"}
OPERATIONS = [
    (method.upper(), path)
    for path, found in build_openapi_document()["paths"].items()
    for method in found
    if path not in OPEN
]


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Inside]:
    made = Inside(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """For tests in which everything is refused."""
    made = Inside(tmp_path_factory.mktemp("controller"))
    yield made
    made.close()


def kept(controller: Inside) -> list[str]:
    """Everything that the database holds."""
    return list(controller.journal.engine.raw_connection().driver_connection.iterdump())  # type: ignore[union-attr]  # sqlite3's


def test_it_opens_nothing_of_anybody_else(controller: Inside) -> None:
    assert controller.call("POST", "/v1/nodes/n2/report", "n2", report("n2")).status == 200
    before = kept(controller)
    for method, path in OPERATIONS:
        for body in (
            report("n2"),
            report("n1"),
            json.dumps({"text": "x", "mode": "act", "role": "admin", "name": "n1"}),
        ):
            other = path.replace("{node}", "n2").replace("{job}", "j").replace("{", "").replace("}", "")
            content = body if isinstance(body, bytes) else body.encode()
            assert controller.call(method, other, "n1", content).status in {401, 403}, f"{method} {other}"
    assert kept(controller) == before


@pytest.mark.parametrize(
    "spelled", ["n2/../n1", "n1/../n2", "%6e2", "n2%00", "N1", "n1%20", "n1/", "n1;n2", "n2#", "n1,n2"]
)
def test_no_spelling_of_a_name_makes_it_another(shared: Inside, spelled: str) -> None:
    for path in (f"/v1/nodes/{spelled}/orders", f"/v1/nodes/{spelled}/report"):
        method, body = ("POST", report("n2")) if path.endswith("report") else ("GET", b"")
        assert shared.call(method, path, "n1", body).status in {400, 403, 404, 405}


def test_a_token_that_was_taken_back_is_worth_nothing_at_once(controller: Inside) -> None:
    assert controller.call("GET", "/v1/nodes/n1/orders", "n1").status == 200
    controller.tokens.revoke(time.time(), token_id=controller.tokens.identify(controller.token["n1"]).id)  # type: ignore[union-attr]  # it is there
    for method, path in (("GET", "/v1/nodes/n1/orders"), ("POST", "/v1/nodes/n1/report")):
        assert controller.call(method, path, "n1", report("n1")).status == 401


def test_a_node_that_enrols_anew_leaves_a_thief_with_nothing(controller: Inside) -> None:
    stolen = controller.token["n1"]
    secret = controller.tokens.issue(Role.JOIN, "n1", time.time(), uses=1, replaces=True)
    answer = controller.call("POST", "/v1/enrol", secret, {"node": "n1"})
    assert answer.status == 200
    assert controller.call("GET", "/v1/nodes/n1/orders", stolen).status == 401
    assert controller.call("GET", "/v1/nodes/n1/orders", answer.json()["token"]).status == 200


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer ", "bearer {0}x", "Bearer {0} {0}", "Basic {0}", "Bearer {0}\x00", "Bearer x, Bearer {0}", "{0}", "Bearer \u0131"],
)  # fmt: skip
def test_a_header_that_is_nearly_a_good_one_is_none(shared: Inside, header: str) -> None:
    sent = {"authorization": header.format(shared.token["ann"]).encode().decode("latin-1")}
    assert shared.call("GET", "/v1/status", headers=sent).status == 401
