"""What operators say of the whole cluster, of actions and of alerts, over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from remediator.api.node_override_handlers import running_node_work
from remediator.model.journal_records import Action
from remediator.model.plan_steps import Mode
from remediator.notifications.alert_settings import AlertSettings
from tests.unit.remediator.act.webhooks.peer import Peer
from tests.unit.remediator.api.in_process_controller import Answer, Inside
from tests.unit.remediator.api.test_access_control import finding, report
from tests.unit.remediator.web.simulated_browser import Browser
from vocabulary.finding import Severity
from vocabulary.order import Order, OrderKind


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Inside]:
    centre = Inside(tmp_path)
    assert centre.call("POST", "/v1/nodes/n1/report", "n1", report(findings=(finding("n1"),))).status == 200
    yield centre
    centre.close()


def until(question: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := question()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def said(centre: Inside, kind: str) -> list[dict[str, Any]]:
    events = centre.call("GET", "/v1/events", "vic").json()["events"]
    return [event for event in events if event["kind"] == kind]


def post(centre: Inside, path: str, body: Any = b"", who: str = "ann") -> Answer:
    return centre.call("POST", path, who, body)


def status(centre: Inside) -> dict[str, Any]:
    found: dict[str, Any] = centre.call("GET", "/v1/status", "vic").json()
    return found


def test_a_mode_stands_over_the_configuration_and_a_restart(tmp_path: Path) -> None:
    centre = Inside(tmp_path)
    assert status(centre)["mode"] == "recommend"
    assert "mode_by" not in status(centre)
    assert post(centre, "/v1/mode", {"mode": "observe", "text": "3 a.m."}).status == 204
    centre.close()
    centre = Inside(tmp_path, mode=Mode.ACT)  # another configuration, another term
    found = status(centre)
    assert found["mode"] == "observe"
    assert found["mode_by"].startswith("ann since ")
    assert found["mode_by"].endswith(": 3 a.m.")
    assert any(words.startswith("mode is observe (set by ann") for words in found["blocked"])
    assert 'remediator_mode{mode="observe"} 1.0' in centre.call("GET", "/metrics").body.decode()
    assert post(centre, "/v1/mode", {"mode": ""}).status == 204
    assert status(centre)["mode"] == "act"
    assert [(e["actor"], e["data"]) for e in said(centre, "mode_set")] == [
        ("ann", {"mode": "observe", "address": "192.0.2.7"}),
        ("ann", {"mode": "", "address": "192.0.2.7"}),
    ]
    centre.close()


def test_a_cordon_by_hand_is_theirs_in_the_scheduler(tmp_path: Path, centre: Inside) -> None:
    def holds() -> dict[str, Any]:
        file = tmp_path / "holds.json"
        found: dict[str, Any] = json.loads(file.read_bytes())["holds"] if file.exists() else {}
        return found

    assert post(centre, "/v1/nodes/n1/cordon", {"text": "a fan"}).status == 204
    until(lambda: holds().get("n1", {}).get("reason") == "by ann: a fan")
    until(lambda: centre.call("GET", "/v1/nodes/n1", "vic").json().get("held_by") == "operator")
    assert centre.call("GET", "/v1/nodes/n1", "vic").json()["state"] == "operator-held"
    assert post(centre, "/v1/nodes/n1/uncordon").status == 204
    until(lambda: not holds())
    until(lambda: "held_by" not in centre.call("GET", "/v1/nodes/n1", "vic").json())
    assert [(e["actor"], e["data"]["word"]) for e in said(centre, "by_hand")] == [
        ("ann", "cordon"),
        ("ann", "uncordon"),
    ]
    found = centre.call("GET", "/v1/actions?state=ended", "vic").json()["actions"]
    ours = {action["verb"]: action for action in found if action["verb"].endswith("_by_hand")}
    assert {verb: action["state"] for verb, action in ours.items()} == {
        "cordon_by_hand": "succeeded",
        "uncordon_by_hand": "succeeded",
    }
    assert ours["cordon_by_hand"]["why"] == "ann cordons n1: a fan"


def test_an_uncordon_while_a_reset_is_ordered_wants_one_word_more(centre: Inside) -> None:
    now = time.time()
    order = Order(
        id="o1", kind=OrderKind.RESET_GPU, node="n1", issued_at=now, expires_at=now + 900, incident="i", reason="x"
    )
    reset = Action(
        id="o1",
        incident="i",
        decision="d",
        node="n1",
        verb="reset_gpu",
        planned_at=now,
        deadline=now + 900,
        order=order,
    )
    browser, form = Browser(centre).log_in("ann"), "/nodes/n1/actions/uncordon"
    csrf, engine = browser.csrf(form), centre.service.engine

    def while_ordered(**what: Any) -> None:
        """The engine publishes what it knows whenever there is news; so this is said again before each try."""
        engine.snapshot = replace(engine.snapshot, **what)

    def refused() -> Any:
        while_ordered(ordered={"n1": [reset]})
        answer = post(centre, "/v1/nodes/n1/uncordon", {"text": "it is well"})
        return answer.json() if answer.status == 409 else None

    problem = until(refused)
    assert problem["error"] == "reset_gpu is in progress on n1"
    assert "force" in problem["todo"]

    def asked_on_the_page() -> bool:
        while_ordered(ordered={"n1": [reset]})
        return b'name="force"' in browser.post(form, {"csrf": csrf, "text": "it is well"}).body

    until(asked_on_the_page)
    while_ordered(ordered={"n1": [reset]})
    assert browser.post(form, {"csrf": csrf, "text": "it is well", "force": "yes"}).status == 303
    while_ordered(ordered={"n1": [reset]})
    assert post(centre, "/v1/nodes/n1/uncordon", {"force": True}).status == 204
    given_up = replace(engine.snapshot, ordered={}, unanswered_actions={"o1": reset})
    assert running_node_work(given_up, "n1", now) == [
        "reset_gpu was ordered on n1 and withdrawn, but n1 has not reported its end"
    ]
    assert not running_node_work(given_up, "n2", now)
    assert not running_node_work(given_up, "n1", now + 900)


def test_what_is_cancelled_is_not_done(tmp_path: Path) -> None:
    centre = Inside(tmp_path, mode=Mode.ACT)
    (tmp_path / "holds.json").write_text("{")  # nobody can be held until this is mended
    assert centre.call("POST", "/v1/nodes/n1/report", "n1", report(findings=(finding("n1"),))).status == 200
    assert post(centre, "/v1/nodes/n1/cordon", {"text": "a fan"}).status == 204
    found = centre.call("GET", "/v1/actions", "vic").json()["actions"]
    by_verb = {action["verb"]: action["id"] for action in found}
    mine = by_verb["cordon_by_hand"]
    assert post(centre, f"/v1/actions/{mine}/cancel", {"text": "wrong node"}).status == 204
    assert mine not in {action["id"] for action in centre.call("GET", "/v1/actions", "vic").json()["actions"]}
    again = post(centre, f"/v1/actions/{mine}/cancel")
    assert (again.status, again.json()["error"]) == (409, f"{mine} has ended: cancelled")
    assert post(centre, "/v1/actions/none/cancel").status == 404
    assert [e["text"] for e in said(centre, "action_cancelled")] == [
        "cordon_by_hand of n1 cancelled by ann: wrong node",
    ]
    if "cordon" in by_verb:
        refused = post(centre, f"/v1/actions/{by_verb['cordon']}/cancel")
        assert refused.status == 409
        assert "nodes hold n1" in refused.json()["todo"]
    centre.close()


def test_a_silenced_alert_waits_and_is_told_when_the_silence_ends(tmp_path: Path) -> None:
    peer = Peer()
    alerts = AlertSettings(webhooks=(peer.url,))
    centre = Inside(tmp_path, alerts=alerts)
    wish = {"match": "n*", "kinds": "*", "until": time.time() + 3600, "text": "we know"}
    first = post(centre, "/v1/alerts/silences", wish)
    assert first.json() | {"since": 0} == {"id": first.json()["id"], "by": "ann", "since": 0, **wish}
    assert post(centre, "/v1/alerts/silences", wish).json()["id"] == first.json()["id"]
    assert len(centre.call("GET", "/v1/alerts/silences", "vic").json()["silences"]) == 1
    odd = replace(finding("n1"), check="odd", code="thing", severity=Severity.UNCLASSIFIED)
    assert centre.call("POST", "/v1/nodes/n1/report", "n1", report(findings=(odd,))).status == 200

    def states() -> set[str]:
        return {alert["state"] for alert in centre.call("GET", "/v1/alerts", "vic").json()["alerts"]}

    until(lambda: states() == {"silenced"})
    assert not peer.got
    assert post(centre, f"/v1/alerts/silences/{first.json()['id']}/end", {"text": "fixed"}).status == 204
    until(lambda: states() == {"sent"})
    assert peer.got
    assert post(centre, f"/v1/alerts/silences/{first.json()['id']}/end").status == 404
    assert [e["kind"] for e in (*said(centre, "silenced"), *said(centre, "silence_ended"))] == [
        "silenced",
        "silence_ended",
    ]
    centre.close()
    peer.close()


def test_a_receiver_is_tried_out(tmp_path: Path) -> None:
    peer = Peer()
    centre = Inside(tmp_path, alerts=AlertSettings(webhooks=(peer.url,)))
    found = post(centre, "/v1/alerts/test", {"receiver": "webhook-1"}).json()
    assert (found["receiver"], found["taken"]) == ("webhook-1", True)
    peer.status = 500
    assert post(centre, "/v1/alerts/test", {"receiver": "webhook-1"}).json()["taken"] is False
    unknown = post(centre, "/v1/alerts/test", {"receiver": "nobody"})
    assert (unknown.status, unknown.json()["todo"]) == (404, "configured: webhook-1")
    assert [e["data"]["receiver"] for e in said(centre, "receiver_tried")] == ["webhook-1", "webhook-1"]
    centre.close()
    peer.close()


def test_what_is_refused(centre: Inside) -> None:
    later = time.time() + 60
    for path, body, who, code in (
        ("/v1/mode", {"mode": "observe"}, "vic", 403),
        ("/v1/mode", {"mode": "observe"}, "n1", 403),
        ("/v1/mode", {"mode": "bold"}, "ann", 400),
        ("/v1/mode", {}, "ann", 400),
        ("/v1/nodes/n1/cordon", {}, "ann", 400),
        ("/v1/nodes/n1/cordon", {"text": "x"}, "vic", 403),
        ("/v1/nodes/n2/cordon", {"text": "x"}, "ann", 404),
        ("/v1/nodes/n2/uncordon", {}, "ann", 404),
        ("/v1/alerts/silences", {"until": 1.0, "text": "x"}, "ann", 400),
        ("/v1/alerts/silences", {"until": later, "text": " "}, "ann", 400),
        ("/v1/alerts/silences", {"until": later}, "ann", 400),
        ("/v1/alerts/silences", {"until": later, "text": "x"}, "vic", 403),
        ("/v1/alerts/silences/none/end", {}, "ann", 404),
        ("/v1/alerts/test", {"receiver": ""}, "ann", 400),
    ):
        assert post(centre, path, body, who).status == code, (path, body, who)
    assert not said(centre, "mode_set")
    assert post(centre, "/v1/nodes/n1/retire", {"text": "sold"}).status == 204
    assert post(centre, "/v1/nodes/n1/cordon", {"text": "x"}).status == 409


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/mode", {"mode": "bold"}, "Invalid enum value 'bold' - at `$.mode`"),
        ("/v1/mode", {}, "Object missing required field `mode`"),
        ("/v1/nodes/n1/hold", {"text": 7}, "Expected `str`, got `int` - at `$.text`"),
        ("/v1/nodes/n1/hold", {"text": ""}, "Expected `str` of length >= 1 - at `$.text`"),
        ("/v1/nodes/n1/hold", {"text": "x", "for": 1}, "Object contains unknown field `for`"),
        ("/v1/nodes/n1/hold", {"text": "x", "until": 1e300}, "Expected `float` <= "),
        ("/v1/nodes/n1/hold", [], "Expected `object`, got `array`"),
        ("/v1/nodes/n1/hold", b"{", "Input data was truncated"),
    ],
)
def test_the_answer_to_an_invalid_body_names_the_field_and_where_the_api_is_described(
    shared: Inside, path: str, body: Any, words: str
) -> None:
    answer = post(shared, path, body)
    assert answer.status == 400
    assert answer.json()["error"].startswith(f"the body is invalid: {words}")
    assert "Wish" not in answer.body.decode()
    assert answer.json()["todo"] == "see /v1/openapi.json for what is expected"
