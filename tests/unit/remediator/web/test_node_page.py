"""The page of a node says what a person can do about its incident and how to stop it, to those who may."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remediator.model.plan_steps import Mode
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.web.simulated_browser import Browser
from tests.unit.remediator.web.test_work_pages import in_trouble, incident_of, until


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    centre = in_trouble(tmp_path_factory.mktemp("centre"), Mode.APPROVE)
    until(lambda: bool(centre.call("GET", "/v1/awaiting", "vic").json()["awaiting"]), "a plan waits for approval")
    yield centre
    centre.close()


def test_an_operator_is_led_to_approve_to_stop_and_to_the_incident(asking: Inside) -> None:
    incident = incident_of(asking)
    page = Browser(asking).log_in("ann").get("/nodes/n1").body.decode()
    now = page[page.index('id="now"') : page.index('id="machine"')]
    for target in (
        f"/incidents/{incident}/actions/approve?what=",
        "/nodes/n1/actions/hold",
        f"/incidents/{incident}",
        "/control",
    ):
        assert f'href="{target}' in now


def test_a_viewer_is_told_who_may(asking: Inside) -> None:
    page = Browser(asking).log_in("vic").get("/nodes/n1").body.decode()
    assert "An operator can approve or stop the plan" in page
    assert "/actions/" not in page


def test_a_node_without_trouble_offers_nothing_about_it(asking: Inside) -> None:
    page = Browser(asking).log_in("ann").get("/nodes/n2").body.decode()
    assert "<dt>Actions for you" not in page
    assert "Stop automation everywhere" not in page
