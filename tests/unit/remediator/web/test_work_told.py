"""What the centre concluded, and what people were told or not, on the pages about it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from remediator.act.webhooks.telling import Telling
from remediator.model.inputs import VerdictsReached
from remediator.model.records import JobRef
from remediator.watch import lemons, slow
from remediator.watch.conclusions import conclusion, origin_of
from tests.unit.remediator.api.inside import Inside
from tests.unit.remediator.web.browsing import Browser
from tests.unit.remediator.web.nodes_told import EVIL, finding, report
from tests.unit.remediator.web.test_pages import Outline
from tests.unit.remediator.web.test_work_pages import form, text_of, until
from vocabulary.finding import Evidence, Severity
from vocabulary.identity import Component, ComponentKind

HOST = Component(ComponentKind.HOST)


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Inside]:
    centre = Inside(tmp_path, alerts=Telling(webhooks=("http://127.0.0.1:9/",)))
    report(centre, "n1", job=EVIL)
    report(centre, "n2", findings=(finding("n2", EVIL, Severity.UNCLASSIFIED, code="odd"),))
    yield centre
    centre.close()


def conclude(centre: Inside) -> None:
    """What the watch would say of a job of many ranks. It may take it back soon: here is no such job."""
    now, about = time.time(), ("n1", HOST)
    past: Evidence = {"probability": 0.87, "incidents": 5, "service_d": 30.0, "advice": "test"}
    kind = (lemons.CHECK, "suspected")
    lemon = conclusion(about, kind, lemons.ORIGIN, Severity.WARNING, f"it fails {EVIL}", now, past)
    told: Evidence = {"job": EVIL, "attempt": 0, "ranks": "3", "slowdown": 0.31, "confidence": 0.9}
    origin = origin_of(slow.SOURCE, JobRef(EVIL, 0))
    held = conclusion(about, ("straggler", "host"), origin, Severity.WARNING, f"held back {EVIL}", now, told)
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
    shown(centre, "/lemons", "0.87", "a preflight before its next job", "it fails <script>alert(1)</script>")


def test_stragglers_are_on_their_page_and_their_jobs(centre: Inside) -> None:
    shown(centre, "/stragglers", "+31 %", "held back <script>alert(1)</script>")
    shown(centre, "/jobs?trouble=1", "held back")
    shown(centre, f"/jobs/{quote(EVIL)}", "+31 %")


def test_messages_say_to_whom_and_what_went_wrong(centre: Inside) -> None:
    browser = Browser(centre).log_in("ann")

    def told() -> bool:
        conclude(centre)
        return "webhook-1" in str(centre.call("GET", "/v1/alerts", "vic").json())

    until(told, "an alert")
    assert "webhook-1" in text_of(browser, "/alerts?state=&match=n1")
    assert "No message is like that" in text_of(browser, "/alerts?match=none")
    fields = form(browser, "/alerts", "/alerts/test", receiver="webhook-1")
    answer = browser.post("/alerts/test", fields)
    assert "webhook-1 did not take the test message" in Outline(answer.body).text


def test_the_page_that_stops_automation_names_what_it_does_not_stop(centre: Inside) -> None:
    text = text_of(Browser(centre).log_in("ann"), "/control")
    assert "What a stop does not hold up" in text
    assert "Nothing of what is under way now" in text
    Path(centre.config.scheduler.state_file).write_text("{")  # nobody can hold a node: what is ordered stays under way
    assert centre.call("POST", "/v1/nodes/n1/cordon", "ann", {"text": "a fan"}).status == 204
    until(lambda: "cordon by hand on n1: goes on" in text_of(Browser(centre).log_in("ann"), "/control"), "the cordon")


def test_the_breaker_shows_its_limits(centre: Inside) -> None:
    text = text_of(Browser(centre).log_in("vic"), "/control")
    assert "level: 0 of at most" in text
    assert "It was never reset" in text
