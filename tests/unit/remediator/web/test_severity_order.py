"""The gravest incident stands first, and a test fault is marked wherever its incident is shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from healthctl.pages.incident_page import incident_title
from remediator.api.record_views import incident_list_view
from remediator.model.journal_records import BREAKER, Answer, Incident, IncidentState
from remediator.model.plan_steps import Mode
from remediator.web.severity_order import drill_text, order_by_severity, worst_severity
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.web.node_reports import finding, report
from tests.unit.remediator.web.simulated_browser import Browser
from tests.unit.remediator.web.test_work_pages import incident_of, text_of, until
from vocabulary.finding import Severity
from vocabulary.health import Health

MILD, FATAL = (replace(finding("n", severity=s), id=s.value) for s in (Severity.WARNING, Severity.FATAL))


def incident(name: str, *findings: str, **more: object) -> Incident:
    return Incident(**({"id": name, "node": name, "title": "t", "opened_at": 1.0, "findings": findings} | more))  # type: ignore[arg-type]  # fields


def test_the_gravest_comes_first_whenever_it_was_opened() -> None:
    known = {f.id: f for f in (MILD, FATAL)}
    dead = incident("dead", "warning", "fatal")
    asks = incident("asks", "warning", state=IncidentState.WAITING, opened_at=9.0)
    newer = incident("newer", "warning", opened_at=8.0)
    watched = incident("watched", "fatal", answer=Answer.WATCH)
    breaker = incident("breaker", node=BREAKER)
    order = order_by_severity([watched, newer, asks, dead, breaker], known)
    assert [i.id for i in order] == ["breaker", "dead", "asks", "newer", "watched"]


def test_what_is_over_makes_nothing_grave() -> None:
    over = replace(FATAL, active=False)
    assert worst_severity([MILD, over]) is Severity.WARNING
    assert worst_severity([over]) is None


@given(st.lists(st.booleans()))
def test_a_drill_is_marked_whole_or_in_part(marks: list[bool]) -> None:
    said = drill_text([replace(MILD, injected=mark) for mark in marks])
    assert bool(said) == any(marks)
    assert (said == "injected") == (bool(marks) and all(marks))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """A real finding and a test fault on one node, whose incident is so no drill as a whole."""
    place: Path = tmp_path_factory.mktemp("centre")
    centre = Inside(place, Mode.APPROVE)
    real = finding("n1")
    test_fault = replace(finding("n1", code="uncorrected", severity=Severity.FATAL), injected=True)
    report(centre, "n1", findings=(real, test_fault), health=Health.UNHEALTHY)
    until(lambda: [i for i in centre.service.engine.snapshot.incidents.values() if i.answer], "an incident is decided")
    yield centre
    centre.close()


@pytest.mark.parametrize("path", ["/", "/incidents", "/incidents/{incident}", "/work"])
def test_a_test_fault_among_real_ones_is_marked(mixed: Inside, path: str) -> None:
    text = text_of(Browser(mixed).log_in("vic"), path.replace("{incident}", incident_of(mixed)))
    assert "partly injected" in text


def test_an_incident_that_is_over_is_marked_too(tmp_path: Path) -> None:
    centre = Inside(tmp_path, Mode.RECOMMEND)
    try:
        real = finding("n1")
        test_fault = replace(finding("n1", code="uncorrected", severity=Severity.FATAL), injected=True)
        report(centre, "n1", findings=(real, test_fault), health=Health.UNHEALTHY)
        report(centre, "n2", findings=(finding("n2"),), health=Health.UNHEALTHY)
        until(lambda: len(known_now(centre)) == 2, "both incidents are decided")
        for name in list(known_now(centre)):
            answer = centre.call("POST", f"/v1/incidents/{name}/resolve", "ann", {"text": "done"})
            assert answer.status == 204, answer.body
        listed = centre.call("GET", "/v1/incidents", "vic").json()["incidents"]
        assert {i["node"]: (i["state"], i.get("partly_injected", False)) for i in listed} == {
            "n1": ("closed", True),
            "n2": ("closed", False),
        }
        assert text_of(Browser(centre).log_in("vic"), "/incidents?state=closed").count("partly injected") == 1
    finally:
        centre.close()


def known_now(centre: Inside) -> list[str]:
    return [i.id for i in centre.service.engine.snapshot.incidents.values() if i.answer]


def test_a_list_marks_what_has_one_test_fault_among_its_findings() -> None:
    drill_whole = incident("whole", "real", "fake", injected=True)
    listed = incident_list_view([incident("part", "real", "fake"), incident("none", "real"), drill_whole], {"fake"})
    assert [(i.id, i.injected, i.partly_injected) for i in listed.incidents] == [
        ("part", False, True),
        ("none", False, False),
        ("whole", True, False),
    ]
    assert [incident_title(i) for i in listed.incidents] == ["[partly injected] t", "t", "[injected] t"]
