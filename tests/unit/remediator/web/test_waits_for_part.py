"""A node that is out until its part is replaced: the pages say so, and what to press when the part is in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from remediator.model.journal_records import IncidentState
from remediator.model.plan_steps import Mode
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.web.node_reports import finding, report
from tests.unit.remediator.web.simulated_browser import Browser
from tests.unit.remediator.web.test_work_pages import incident_of, text_of, until
from vocabulary.finding import Severity, finding_id
from vocabulary.health import Health
from vocabulary.messages.wire import OrdersReply, decode_message, encode_message
from vocabulary.order import OrderState, OrderUpdate


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """A GPU fell off the bus of n1, and the plan is through."""
    place: Path = tmp_path_factory.mktemp("centre")
    centre = Inside(place, Mode.ACT)
    known = finding("n1", "GPU has fallen off the bus", Severity.FATAL, "79")
    gone = replace(known, id=finding_id("n1", "xid", "79", known.component, "o"), check="xid")
    report(centre, "n2")
    report(centre, "n1", findings=(gone,), health=Health.UNHEALTHY)
    until(lambda: _obeyed_through(centre), "the plan is through, and people were told so")
    yield centre
    centre.close()


def _obeyed_through(centre: Inside) -> bool:
    _obey(centre)
    snapshot = centre.service.engine.snapshot
    waits = any(incident.state is IncidentState.WAITING for incident in snapshot.incidents.values())
    return waits and all(action.state.final for action in snapshot.actions.values())


def _obey(centre: Inside) -> None:
    answer = centre.call("GET", "/v1/nodes/n1/orders", "n1")
    for order in decode_message(answer.body, OrdersReply).orders:
        done = OrderUpdate(id=order.id, state=OrderState.SUCCEEDED, at=time.time())
        centre.call("POST", f"/v1/nodes/n1/orders/{order.id}", "n1", encode_message(done))


def test_an_incident_says_what_to_press_when_the_part_is_in(lost: Inside) -> None:
    page = f"/incidents/{incident_of(lost)}"
    text = text_of(Browser(lost).log_in("ann"), page)
    assert "Waiting for a replacement part. After the repair, boot the node" in text
    assert "waiting for a replacement part" in text
    assert b'href="/nodes/n1/actions/uncordon"' in Browser(lost).log_in("ann").get(page).body
    assert b"/actions/uncordon" not in Browser(lost).log_in("vic").get(page).body
    assert "an operator uncordons the node" in text_of(Browser(lost).log_in("vic"), page)


def test_an_alert_that_nobody_gets_is_told_as_that(lost: Inside) -> None:
    incident = incident_of(lost)
    view = lost.call("GET", f"/v1/incidents/{incident}", "vic").json()
    assert view["waits_for_part"] is True
    alerts = [a.get("lacks", "") for a in view["actions"] if a["verb"] == "alert"]
    assert alerts
    assert set(alerts) == {"told nobody"}
    browser = Browser(lost).log_in("vic")
    text = text_of(browser, f"/incidents/{incident}")
    assert "alert not delivered after" in text
    assert "alerts.receivers" not in text
    assert "not delivered" in text_of(browser, "/work?state=ended")
    assert text_of(browser, "/alerts").count("Not delivered: no receiver configured") == 1


def test_what_does_not_wait_for_a_part_has_no_such_hint(lost: Inside, shared: Inside) -> None:
    report(shared, "n1", findings=(finding("n1"),), health=Health.UNHEALTHY)
    until(lambda: shared.service.engine.snapshot.incidents, "an incident")
    assert "replacement part" not in text_of(Browser(shared).log_in("ann"), f"/incidents/{incident_of(shared)}")
