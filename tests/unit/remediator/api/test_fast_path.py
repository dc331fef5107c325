"""Reports and polls go straight to their handlers: nobody may notice but by the clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from remediator.api.api_application import HANDLERS
from remediator.api.endpoint import Endpoint
from remediator.api.fast_path import FastPathApplication
from remediator.api.route_table import ENDPOINTS
from tests.unit.remediator.api.in_process_controller import Answer, Inside

REPORT = {
    "version": 1, "node": "n1", "boot_id": "b", "agent": "a", "seq": 1, "sent_at": 1.0, "ttl_s": 30.0, "health": "healthy",
}  # fmt: skip
CASES: dict[str, tuple[str, str, str, Any]] = {
    "a report": ("POST", "/v1/nodes/n1/report", "n1", REPORT),
    "no token": ("POST", "/v1/nodes/n1/report", "", REPORT),
    "a stranger's token": ("POST", "/v1/nodes/n1/report", "ghd_none", REPORT),
    "another node's token": ("POST", "/v1/nodes/n1/report", "n2", REPORT),
    "a person's token": ("POST", "/v1/nodes/n1/report", "root", REPORT),
    "no report": ("POST", "/v1/nodes/n1/report", "n1", b"{"),
    "too long": ("POST", "/v1/nodes/n1/report", "n1", b" " * (9 << 20)),
    "no such method": ("GET", "/v1/nodes/n1/report", "n1", b""),
    "a head alone": ("HEAD", "/v1/nodes/n1/orders", "n1", b""),
    "no name": ("POST", "/v1/nodes//report", "n1", REPORT),
    "a name with a slash": ("POST", "/v1/nodes/n%2F1/report", "n1", REPORT),
    "a poll": ("GET", "/v1/nodes/n1/orders?wait_s=0", "n1", b""),
    "a poll for no time": ("GET", "/v1/nodes/n1/orders?wait_s=soon", "n1", b""),
    "an answer": ("POST", "/v1/nodes/n1/orders/o1", "n1", b"{}"),
    "a node's page": ("GET", "/v1/nodes/n1", "vic", b""),
    "nothing": ("GET", "/v1/nodes/", "vic", b""),
}


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    found = Inside(tmp_path)
    yield found
    found.close()


def test_the_short_way_answers_as_the_long_one(inside: Inside) -> None:
    long = {case: _told(inside.call(*asked)) for case, asked in CASES.items()}
    inside.app = FastPathApplication(inside.app, ENDPOINTS, HANDLERS)  # type: ignore[assignment]  # both are called alike
    short = {case: _told(inside.call(*asked)) for case, asked in CASES.items()}
    assert short == long
    assert {status for status, _, _ in short.values()} >= {200, 400, 401, 403, 405, 413}


def test_reports_and_polls_do_not_go_the_long_way(inside: Inside) -> None:
    passed: list[str] = []

    class Counted:
        async def __call__(self, scope: Any, *_: Any) -> None:
            passed.append(scope["path"])

    direct = FastPathApplication(inside.app, ENDPOINTS, HANDLERS)
    inside.app = direct  # type: ignore[assignment]  # same
    middleware, direct._app.middleware_stack = direct._app.middleware_stack, Counted()
    assert inside.call("POST", "/v1/nodes/n1/report", "n1", REPORT).status == 200
    assert inside.call("GET", "/v1/nodes/n1/orders?wait_s=0", "n1").status == 200
    direct._app.middleware_stack = middleware
    assert passed == []


def test_a_bug_of_ours_is_answered_and_told_to_the_server(inside: Inside) -> None:
    async def fails(_request: Request) -> Response:
        raise LookupError("a bug")

    broken = tuple(
        Endpoint(method=e.method, path=e.path, access=e.access, handler=fails, about=e.about) for e in ENDPOINTS
    )
    sent: list[Any] = []
    direct = FastPathApplication(inside.app, broken, HANDLERS)

    class Heard:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            async def both(message: Any) -> None:
                sent.append(message)
                await send(message)

            await direct(scope, receive, both)

    inside.app = Heard()  # type: ignore[assignment]  # same
    with pytest.raises(LookupError, match="a bug"):
        inside.call("POST", "/v1/nodes/n1/report", "n1", REPORT)
    assert sent[0]["status"] == 500
    assert "see the controller's log" in json.loads(sent[1]["body"])["error"]


def _told(answer: Answer) -> tuple[int, list[str], Any]:
    return answer.status, sorted(answer.headers), json.loads(answer.body) if answer.body else None
