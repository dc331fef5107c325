"""The banner shows only what stops automation; everything else is a figure on the overview."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from remediator.fleet.report_registry import ReportRegistry
from remediator.model.journal_records import NodeRecord, OperatorHold
from remediator.model.override_records import MODE, AlertSilence, ModeOverride
from remediator.model.plan_steps import Mode
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from remediator.model.views import StatusView
from remediator.web.automation_blockers import (
    AutomationBlocker,
    ManualSettings,
    ReportFigures,
    list_automation_blockers,
    summarize_manual_settings,
    summarize_reports,
)
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.web.node_reports import report
from tests.unit.remediator.web.simulated_browser import Browser
from tests.unit.remediator.web.test_pages import Outline
from tests.unit.remediator.web.test_work_pages import text_of, until
from vocabulary.health import Health
from vocabulary.messages.wire import Report

WELL = StatusView("c", "1", "act", 1, "p", 0.0, 9, {}, {}, 1, 2, 0, 0, "ok")


def test_cordons_and_silences_of_people_are_counted_and_no_others() -> None:
    holds = [
        SchedulerNodeState("ours", schedulable=False, owner=HoldOwner.US),
        SchedulerNodeState("theirs", schedulable=False, owner=HoldOwner.OPERATOR),
        SchedulerNodeState("unasked", schedulable=None, owner=HoldOwner.OPERATOR),
        SchedulerNodeState("free", schedulable=True),
    ]
    operator_overrides = {
        MODE: ModeOverride(Mode.ACT, "ann", 1.0),
        "now": AlertSilence("now", "*", "*", 1.0, 20.0, "ann", "why"),
        "over": AlertSilence("over", "*", "*", 1.0, 9.0, "ann", "why"),
    }
    assert summarize_manual_settings(holds, operator_overrides, 10.0) == ManualSettings(cordons=1, silences=1)


def told(node: str, health: Health, ttl_s: float) -> Report:
    return Report(version=1, node=node, boot_id="b", agent="a", seq=1, sent_at=0.0, ttl_s=ttl_s, health=health)


def test_held_silent_and_unknown_nodes_are_counted_once_and_retired_ones_never() -> None:
    report_registry = ReportRegistry()
    report_registry.take(told("well", Health.HEALTHY, 60.0), 0.0)
    report_registry.take(told("unknown", Health.UNKNOWN, 60.0), 0.0)
    report_registry.take(told("late", Health.HEALTHY, 5.0), 0.0)
    records = [
        NodeRecord("well", hands_off=OperatorHold("ann")),
        NodeRecord("unknown"),
        NodeRecord("late"),
        NodeRecord("never"),
        NodeRecord("retired", state=NodeState.RETIRED),
    ]
    assert summarize_reports(records, report_registry, 10.0) == ReportFigures(held=1, silent=2, unknown=1)


@pytest.mark.parametrize(
    ("change", "trouble", "leads", "what", "everything"),
    [
        ({}, "", True, [], False),
        ({"blocked": ("operator hold on 1 node: n1", "inc-1 on n1 is held by a guard")}, "", True, [], False),
        ({"mode": "approve"}, "", True, ["mode approve"], False),
        ({"mode": "observe"}, "", True, ["mode observe"], True),
        ({"breaker": "6 nodes in an hour"}, "", True, ["breaker open"], False),
        ({"isolated": 2}, "", True, ["isolation budget used up"], False),
        ({}, "disk full", False, ["store not writable"], True),
        ({}, "", False, ["leadership not confirmed"], True),
    ],
)
def test_the_banner_lists_what_stops_the_system_and_nothing_else(
    change: dict[str, object], trouble: str, what: list[str], *, leads: bool, everything: bool
) -> None:
    found = list_automation_blockers(replace(WELL, **change), trouble, leads=leads)
    assert [each.what for each in found] == what
    assert any(each.everything for each in found) is everything


def test_who_set_the_mode_and_why_is_in_the_banner() -> None:
    (found,) = list_automation_blockers(replace(WELL, mode="observe", mode_by="ann since 1: a test"), "")
    assert found == AutomationBlocker(
        "mode observe",
        "decisions are recorded, nothing is carried out; ann since 1: a test",
        "/control",
        everything=True,
    )


def banner_of(browser: Browser, path: str) -> dict[str, str | None]:
    """The attributes of the banner's element, which is always in the page."""
    [found] = [
        attributes for _, attributes in Outline(browser.get(path).body).tags if attributes.get("id") == "blocked"
    ]
    return found


def test_a_new_centre_without_nodes_is_not_blocked(tmp_path: Path) -> None:
    centre = Inside(tmp_path, Mode.ACT)
    try:
        browser = Browser(centre).log_in("vic")
        assert "hidden" in banner_of(browser, "/")
        assert "No node has reported yet" in text_of(browser, "/")
        assert "mode act" in text_of(browser, "/")
    finally:
        centre.close()


def test_a_node_of_unknown_health_that_reports_is_not_called_silent(tmp_path: Path) -> None:
    centre = Inside(tmp_path, Mode.ACT)
    try:
        report(centre, "n1", health=Health.UNKNOWN)
        until(lambda: "n1" in centre.service.engine.snapshot.nodes, "the node is known")
        browser = Browser(centre).log_in("vic")
        text = text_of(browser, "/")
        assert "nodes of unknown health 1" in text
        assert "silent" not in text
        until_s = centre.service.clock.wall() + 3600
        said = centre.call("POST", "/v1/alerts/silences", "ann", {"until": until_s, "text": "the rack is moved"})
        assert said.status == 200, said.body
        assert centre.call("POST", "/v1/nodes/n1/hold", "ann", {"text": "a fan"}).status == 204
        until(lambda: "taken over by operators 1" in text_of(browser, "/"), "the figure of held nodes")
        assert "silences 1" in text_of(browser, "/")
        for path in ("/", "/incidents"):
            assert "hidden" in banner_of(browser, path)
    finally:
        centre.close()
