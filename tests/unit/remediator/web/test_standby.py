"""A replica that does not lead: it says so, and where to go."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from starlette.requests import Request

from remediator.api.handler_context import LongPollWakeups
from remediator.api.leader_gateway import LeaderGateway
from remediator.config import Config
from remediator.store import leader_address
from remediator.store.journal import Journal
from remediator.store.leader_address import LeaderAddress
from remediator.web import static_files
from remediator.web.web_application import WebApplication


def page(web: WebApplication) -> tuple[int, str]:
    scope = {"type": "http", "method": "GET", "path": "/nodes", "headers": [], "query_string": b""}
    answer = asyncio.run(web.show_standby(Request(scope), "another replica leads"))
    return answer.status_code, bytes(answer.body).decode()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    journal = Journal(f"sqlite:///{tmp_path}/r.db")
    journal.prepare()
    return journal


def test_it_leads_to_the_leader(journal: Journal) -> None:
    leader_address.write_leader_address(
        journal.engine, LeaderAddress("host-a", "0.0.0.0:15180", "https://a.example/<x>")
    )
    status, text = page(
        WebApplication(Config(cluster="c1"), lambda: leader_address.read_leader_address(journal.engine))
    )
    journal.close()
    assert status == 503
    assert "Another replica leads" in text
    assert "host-a" in text
    assert 'href="https://a.example/&lt;x&gt;"' in text


def test_without_a_leader_or_a_database_it_still_answers(tmp_path: Path, journal: Journal) -> None:
    assert leader_address.read_leader_address(journal.engine) is None
    journal.close()
    empty = Journal(f"sqlite:///{tmp_path}/none.db")
    status, text = page(WebApplication(Config(cluster="c1"), lambda: leader_address.read_leader_address(empty.engine)))
    empty.close()
    assert status == 503
    assert "/healthz" in text


@pytest.mark.parametrize("away", [False, True])
def test_many_who_ask_at_once_are_one_question_to_the_database(*, away: bool) -> None:
    asked: list[float] = []
    now = 100.0

    def leader() -> LeaderAddress | None:
        asked.append(now)
        if away:
            raise OperationalError("select", {}, Exception("away"))
        return LeaderAddress("host-a", "0.0.0.0:15180", "")

    web = WebApplication(Config(cluster="c1"), leader, lambda: now)

    async def all_at_once() -> set[int]:
        scope = {"type": "http", "method": "GET", "path": "/nodes", "headers": [], "query_string": b""}
        answers = await asyncio.gather(*(web.show_standby(Request(scope), "x") for _ in range(50)))
        return {answer.status_code for answer in answers}

    async def twice() -> None:
        nonlocal now
        assert await all_at_once() == {503}
        assert asked == [100.0]
        now += 60.0
        assert await all_at_once() == {503}
        assert asked == [100.0, 160.0]

    asyncio.run(twice())


@pytest.mark.parametrize(
    ("path", "accept", "status", "kind"),
    [
        ("/nodes", "text/html,*/*", 503, "text/html"),
        ("/v1/status", "application/json", 503, "application/json"),
        (static_files.static_path("pages.css"), "text/css", 200, "text/css"),
    ],
)
def test_a_browser_gets_a_page_and_a_program_gets_json(path: str, accept: str, status: int, kind: str) -> None:
    front = LeaderGateway(LongPollWakeups(), WebApplication(Config()))
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(b"accept", accept.encode())],
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(front(scope, receive, send))
    assert sent[0]["status"] == status
    assert dict(sent[0]["headers"])[b"content-type"].decode().startswith(kind)
