"""A replica that does not lead: it says so, and where to go."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from starlette.requests import Request

from remediator.config import Config
from remediator.store import whereabouts
from remediator.store.journal import Journal
from remediator.store.whereabouts import Whereabouts
from remediator.web.app import Web


def page(web: Web) -> tuple[int, str]:
    scope = {"type": "http", "method": "GET", "path": "/nodes", "headers": [], "query_string": b""}
    answer = asyncio.run(web.standing_by(Request(scope), "another remediator leads"))
    return answer.status_code, bytes(answer.body).decode()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    journal = Journal(f"sqlite:///{tmp_path}/r.db")
    journal.prepare()
    return journal


def test_it_leads_to_the_leader(journal: Journal) -> None:
    whereabouts.tell(journal.engine, Whereabouts("host-a", "0.0.0.0:15180", "https://a.example/<x>"))
    status, text = page(Web(Config(cluster="c1"), lambda: whereabouts.read(journal.engine)))
    journal.close()
    assert status == 503
    assert "another remediator leads" in text
    assert "host-a" in text
    assert 'href="https://a.example/&lt;x&gt;"' in text


def test_without_a_leader_or_a_database_it_still_answers(tmp_path: Path, journal: Journal) -> None:
    assert whereabouts.read(journal.engine) is None
    journal.close()
    empty = Journal(f"sqlite:///{tmp_path}/none.db")
    status, text = page(Web(Config(cluster="c1"), lambda: whereabouts.read(empty.engine)))
    empty.close()
    assert status == 503
    assert "/healthz" in text
