"""What an operator may do to a node by a form: whom it hits is said first, and it is the API that does it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request

from remediator.api.handler_context import Refusal
from remediator.model.credentials import Identity, Role
from remediator.model.views import HoldRequest
from remediator.web import blast_radius
from remediator.web.node_actions import NODE_ACTIONS
from remediator.web.page_request import call_api, find_api_route
from remediator.web.pages.node_action_page import JOBS_SHOWN
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.web.node_reports import report
from tests.unit.remediator.web.simulated_browser import Browser
from vocabulary.health import Health
from vocabulary.messages.wire import RankStatus, Report, encode_message


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    centre = Inside(tmp_path_factory.mktemp("centre"))
    report(centre, "n1", job="llama")
    yield centre
    centre.close()


@pytest.mark.parametrize("action", [d for d in NODE_ACTIONS if find_api_route("POST", f"/v1/nodes/n1/{d}")])
def test_an_action_page_says_whom_it_hits(told: Inside, action: str) -> None:
    page = Browser(told).log_in("ann").get(f"/nodes/n1/actions/{action}").body.decode()
    assert "llama" in page
    assert "of 16 here" in page
    assert NODE_ACTIONS[action].does.split(":")[0] in page.replace("&#39;", "'")


def test_a_hold_is_said_with_its_reason_and_its_end(told: Inside) -> None:
    browser = Browser(told).log_in("ann")
    form = "/nodes/n1/actions/hold"
    fields = {"csrf": browser.csrf(form), "text": "cable <b>", "hours": "4"}
    answer = browser.post(form, fields)
    assert (answer.status, answer.headers["location"]) == (303, "/nodes/n1?done=hold")
    kept = told.call("GET", "/v1/nodes/n1", "vic").json()["hands_off"]
    assert (kept["actor"], kept["why"]) == ("ann", "cable <b>")
    assert kept["until"] == pytest.approx(time.time() + 4 * 3600, abs=600)
    page = browser.get("/nodes/n1?done=hold").body.decode()
    assert "cable &lt;b&gt;" in page
    assert "/nodes/n1/actions/release" in page
    assert "/nodes/n1/actions/hold" not in page
    release = "/nodes/n1/actions/release"
    assert browser.post(release, {"csrf": fields["csrf"], "text": ""}).status == 303
    assert "hands_off" not in told.call("GET", "/v1/nodes/n1", "vic").json()


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        ({"text": "  "}, 400, "Enter a reason"),
        ({"text": "x", "hours": "9999"}, 400, "not an offered duration"),
        ({"text": "x" * 2001, "hours": "0"}, 400, "2000"),
    ],
)
def test_a_form_that_is_wrong_comes_back_with_words(
    told: Inside, fields: dict[str, str], status: int, says: str
) -> None:
    browser = Browser(told).log_in("ann")
    answer = browser.post("/nodes/n1/actions/hold", {"csrf": browser.csrf(), **fields})
    assert answer.status == status
    assert says in answer.body.decode()
    assert "hands_off" not in told.call("GET", "/v1/nodes/n1", "vic").json()


def test_the_apis_own_rule_holds_whatever_a_page_lets_in(told: Inside) -> None:
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b"", "app": told.app}
    viewer = Identity(Role.VIEWER, "vic", "v")
    with pytest.raises(Refusal, match="this request needs operator"):
        asyncio.run(call_api(Request(scope), viewer, "POST", "/v1/nodes/n1/hold", body=HoldRequest("x")))


def test_there_is_no_action_beside_the_list(told: Inside) -> None:
    browser = Browser(told).log_in("ann")
    assert browser.get("/nodes/n1/actions/report").status == 404
    assert browser.post("/nodes/n1/actions/report", {"csrf": browser.csrf()}).status == 404


def test_a_viewer_sees_no_buttons(told: Inside) -> None:
    page = Browser(told).log_in("vic").get("/nodes/n1").body.decode()
    assert "/actions/" not in page


def test_after_an_action_only_words_of_ours_are_shown(told: Inside) -> None:
    page = Browser(told).log_in("vic").get("/nodes/n1?done=%3Cb%3Ehello").body.decode()
    assert "hello" not in page


def test_a_job_is_named_whatever_it_is_called(tmp_path: Path) -> None:
    centre = Inside(tmp_path)
    try:
        report(centre, "n1", job="llama/hazard")
        report(centre, "n2", job="llama")
        page = Browser(centre).log_in("ann").get("/nodes/n1/actions/retire")
        assert page.status == 200
        assert b"llama/hazard" in page.body
    finally:
        centre.close()


def test_of_thousands_of_jobs_the_largest_are_named_and_the_rest_counted(tmp_path: Path) -> None:
    centre = Inside(tmp_path)
    try:
        now = time.time()
        ranks = tuple(RankStatus(f"job-{n:04d}", 0, 0, n + 1, 1, 41, "step", now) for n in range(4096))
        body = Report(
            version=1, node="n1", boot_id="b", agent="a", seq=1, sent_at=now, ttl_s=600, health=Health.HEALTHY, ranks=ranks
        )  # fmt: skip
        assert centre.call("POST", "/v1/nodes/n1/report", "n1", encode_message(body)).status == 200
        page = Browser(centre).log_in("ann").get("/nodes/n1/actions/retire").body.decode()
        assert page.count('href="/jobs/job-') == JOBS_SHOWN
        assert "job-4095" in page
        assert re.search(rf"and {4096 - JOBS_SHOWN}\b.* more jobs", page)
    finally:
        centre.close()


@pytest.mark.parametrize("action", ["hold", "retire"])
def test_whom_it_hits_may_be_unknown_and_the_form_is_there(
    told: Inside, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    def fails(*_: object) -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setattr(blast_radius, "affected_jobs_of", fails)
    page = Browser(told).log_in("ann").get(f"/nodes/n1/actions/{action}").body.decode()
    assert "could not be determined" in page
    assert "No job has ranks here" not in page
    assert '<textarea id="text"' in page
