"""What the controller concluded, and what people were told or not, on the pages about it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from remediator.model.journal_records import JobRef
from remediator.model.pipeline_inputs import VerdictsReached
from remediator.monitoring import lemon_findings, straggler_findings
from remediator.monitoring.detector_findings import build_detector_finding, detector_origin
from remediator.notifications.alert_settings import AlertSettings
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.web.node_reports import EVIL, finding, report
from tests.unit.remediator.web.simulated_browser import Browser
from tests.unit.remediator.web.test_pages import Outline
from tests.unit.remediator.web.test_work_pages import form, text_of, until
from vocabulary.finding import Evidence, Severity
from vocabulary.identity import Component, ComponentKind

HOST = Component(ComponentKind.HOST)


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Inside]:
    centre = Inside(tmp_path, alerts=AlertSettings(webhooks=("http://127.0.0.1:9/",)))
    report(centre, "n1", job=EVIL)
    report(centre, "n2", findings=(finding("n2", EVIL, Severity.UNCLASSIFIED, code="odd"),))
    yield centre
    centre.close()


def conclude(centre: Inside) -> None:
    """What the watch would say of a job of many ranks. It may take it back soon: here is no such job."""
    now, about = time.time(), ("n1", HOST)
    past: Evidence = {"probability": 0.87, "incidents": 5, "service_d": 30.0, "advice": "test"}
    kind = (lemon_findings.CHECK, "suspected")
    lemon = build_detector_finding(about, kind, lemon_findings.ORIGIN, Severity.WARNING, f"it fails {EVIL}", now, past)
    told: Evidence = {"job": EVIL, "attempt": 0, "ranks": "3", "slowdown": 0.31, "confidence": 0.9}
    origin = detector_origin(straggler_findings.SOURCE, JobRef(EVIL, 0))
    held = build_detector_finding(
        about, ("straggler", "host"), origin, Severity.WARNING, f"held back {EVIL}", now, told
    )
    centre.service.engine.submit_durably(VerdictsReached(at=now, findings=(lemon, held))).result(60)


def shown(centre: Inside, path: str, *words: str) -> None:
    """The page says all of this once it is concluded."""
    browser = Browser(centre).log_in("vic")

    def said() -> bool:
        conclude(centre)
        text = text_of(browser, path)
        return all(word in text for word in words)

    until(said, f"{path} says {words}")


def test_lemons_say_why_and_what_next(centre: Inside) -> None:
    shown(centre, "/lemons", "0.87", "run a preflight before its next job", "it fails <script>alert(1)</script>")


def test_stragglers_are_on_their_page_and_their_jobs(centre: Inside) -> None:
    shown(centre, "/stragglers", "+31 %", "held back <script>alert(1)</script>")
    shown(centre, "/jobs?trouble=1", "straggler")
    shown(centre, f"/jobs/{quote(EVIL)}", "+31 %")


def test_messages_say_to_whom_and_what_went_wrong(centre: Inside) -> None:
    browser = Browser(centre).log_in("ann")

    def told() -> bool:
        conclude(centre)
        return "webhook-1" in str(centre.call("GET", "/v1/alerts", "vic").json())

    until(told, "an alert")
    assert "webhook-1" in text_of(browser, "/alerts?state=&match=n1")
    assert "No message matches" in text_of(browser, "/alerts?match=none")
    fields = form(browser, "/alerts", "/alerts/test", receiver="webhook-1")
    answer = browser.post("/alerts/test", fields)
    assert "webhook-1 did not accept the test message" in Outline(answer.body).text


def test_the_page_that_stops_automation_names_what_it_does_not_stop(centre: Inside) -> None:
    text = text_of(Browser(centre).log_in("ann"), "/control")
    assert "Actions that continue after a stop" in text
    assert "None of the current actions" in text
    Path(centre.config.scheduler.state_file).write_text("{")  # nobody can hold a node: what is ordered stays under way
    assert centre.call("POST", "/v1/nodes/n1/cordon", "ann", {"text": "a fan"}).status == 204
    until(lambda: "manual cordon on n1: continues" in text_of(Browser(centre).log_in("ann"), "/control"), "the cordon")


def test_the_breaker_shows_its_limits(centre: Inside) -> None:
    text = text_of(Browser(centre).log_in("vic"), "/control")
    assert "level: 0 of at most" in text
    assert "Never reset" in text
