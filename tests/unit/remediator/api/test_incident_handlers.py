"""What people do with incidents and tokens over HTTP, what the audit log says of it, and what stays as it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from remediator.model.pipeline_inputs import BreakerReset
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.api.test_access_control import finding, report


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Inside]:
    centre = Inside(tmp_path)
    yield centre
    centre.close()


def opened(centre: Inside, **more: Any) -> str:
    """The id of an incident on n1."""
    assert centre.call("POST", "/v1/nodes/n1/report", "n1", report(findings=(finding("n1"),), **more)).status == 200
    found: str = centre.call("GET", "/v1/incidents", "ann").json()["incidents"][0]["id"]
    return found


def say(centre: Inside, incident: str, word: str, text: str = "", who: str = "ann", **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return centre.call("POST", f"/v1/incidents/{incident}/{word}", who, {"text": text}, named).status


def events(centre: Inside, *kinds: str) -> list[dict[str, Any]]:
    found = centre.call("GET", "/v1/events", "ann").json()["events"]
    return [event for event in found if event["kind"] in kinds]


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_incident_from_opened_to_reopened(centre: Inside) -> None:
    incident = opened(centre)
    path = f"/v1/incidents/{incident}"
    for _ in range(2):  # saying it again changes nothing
        assert say(centre, incident, "acknowledge") == 204
        assert say(centre, incident, "notes", "the cable was loose", Idempotency_Key="k1") == 204
    shown = centre.call("GET", path, "vic").json()
    assert shown["acknowledged_by"] == "ann"
    assert [note["text"] for note in shown["notes"]] == ["the cable was loose"]
    for _ in range(2):
        assert say(centre, incident, "resolve", "plugged it in") == 204
    shown = centre.call("GET", path, "vic").json()
    assert (shown["state"], shown["outcome"]) == ("closed", "resolved by ann: plugged it in")
    assert say(centre, incident, "acknowledge") == 409
    assert say(centre, incident, "notes", "and again next day") == 204
    for _ in range(2):
        assert say(centre, incident, "reopen", "it was not") == 204
    shown = centre.call("GET", path, "vic").json()
    assert shown["state"] == "open"
    assert len(shown["notes"]) == 2
    kinds = ("incident_acknowledged", "note", "incident_resolved", "incident_reopened")
    said = events(centre, *kinds)
    assert [event["kind"] for event in said] == ["incident_acknowledged", "note", "incident_resolved", "note", kinds[3]]
    assert {(event["actor"], event["data"]["address"]) for event in said} == {("ann", "192.0.2.7")}


def test_a_reopened_incident_is_closed_by_a_person_only(centre: Inside) -> None:
    incident = opened(centre)
    assert say(centre, incident, "resolve") == 204
    cleared = replace(finding("n1"), cleared_at=5.0, cleared_by="reset")
    assert centre.call("POST", "/v1/nodes/n1/report", "n1", report(seq=2, findings=(cleared,), active=())).status == 200
    assert say(centre, incident, "reopen") == 204
    assert centre.call("POST", "/v1/nodes/n1/report", "n1", report(seq=3, active=())).status == 200
    time.sleep(0.6)  # two ticks, in which it could close
    assert centre.call("GET", f"/v1/incidents/{incident}", "ann").json()["state"] == "open"
    assert say(centre, incident, "resolve") == 204
    assert centre.call("GET", f"/v1/incidents/{incident}", "ann").json()["state"] == "closed"


def test_a_second_incident_of_the_node_keeps_the_first_closed(centre: Inside) -> None:
    first = opened(centre)
    assert say(centre, first, "resolve") == 204
    other = finding("n1", "later")
    assert centre.call("POST", "/v1/nodes/n1/report", "n1", report(seq=2, findings=(other,))).status == 200
    assert say(centre, first, "reopen") == 409


def test_only_if_it_is_still_as_it_was_seen(centre: Inside) -> None:
    incident = opened(centre)
    seen = centre.call("GET", f"/v1/incidents/{incident}", "ann").headers["etag"]
    assert say(centre, incident, "acknowledge", If_Match=seen) == 204
    assert say(centre, incident, "resolve", If_Match=seen) == 412
    assert say(centre, incident, "resolve", If_Match=f'"x", {seen}, *') == 412
    assert say(centre, incident, "resolve", If_Match="*") == 204


def test_words_that_are_none_or_too_many(centre: Inside) -> None:
    incident = opened(centre)
    assert say(centre, incident, "notes", "  ") == 400
    assert say(centre, incident, "notes", "x" * 3000) == 400
    assert say(centre, incident, "notes", "x", Idempotency_Key="k" * 200) == 400
    assert say(centre, "inc-none", "notes", "x") == 404
    assert centre.call("POST", f"/v1/incidents/{incident}/notes", "ann", b"[" * 15_000).status == 400


def test_what_people_said_replays(centre: Inside) -> None:
    incident = opened(centre)
    for word in ("acknowledge", "resolve", "reopen"):
        assert say(centre, incident, word) == 204
    state = centre.service.engine.snapshot.incidents[incident]
    assert state.kept_open
    inputs = list(centre.journal.inputs())
    assert [type(item).__name__ for item in inputs].count("IncidentCommand") == 2


def test_the_breaker_is_reset_by_name(centre: Inside) -> None:
    for _ in range(2):  # one that is closed stays so
        assert centre.call("POST", "/v1/breaker/reset", "ann", {"text": "looked"}).status == 204
    assert centre.call("POST", "/v1/breaker/reset", "vic", {}).status == 403
    inputs = [item for item in centre.journal.inputs() if isinstance(item, BreakerReset)]
    assert {(item.actor, item.address, item.text) for item in inputs} == {("ann", "192.0.2.7", "looked")}
