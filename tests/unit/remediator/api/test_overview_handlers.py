"""The cluster in one look: what is worst comes first, everything is bounded, and what could not be asked is said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy.exc import DataError, OperationalError

from remediator.api import overview_views as render
from remediator.engine.decision_engine import StateSnapshot
from remediator.fleet.report_registry import ReportRegistry
from remediator.model.journal_records import (
    BREAKER,
    Action,
    ActionState,
    Answer,
    Decision,
    Incident,
    IncidentState,
    NodeRecord,
)
from remediator.model.override_records import AlertSilence
from remediator.model.plan_steps import Mode
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from remediator.model.views_overview import NamedNodes, ReportFreshness, SilencedView
from remediator.store.history_queries import HistoryQueries
from tests.unit.remediator.api.in_process_controller import Inside
from tests.unit.remediator.api.test_access_control import finding, report
from vocabulary.finding import Finding, Severity
from vocabulary.health import Health
from vocabulary.messages.wire import Report

NOW = 1_700_000_000.0
FACT = finding("n1")


def incident(name: str, *findings: Finding, node: str = "n1", at: float = NOW, **more: Any) -> Incident:
    return Incident(
        id=f"inc-{name}", node=node, title="t", opened_at=at, findings=tuple(f.id for f in findings), **more
    )


def state(
    *incidents: Incident, facts: tuple[Finding, ...] = (), actions: tuple[Action, ...] = (), **more: Any
) -> StateSnapshot:
    nodes = {each.node: NodeRecord(node=each.node) for each in incidents if ":" not in each.node}
    known: dict[str, Any] = {"nodes": nodes, "holds": {}} | more
    return StateSnapshot(
        findings={f.id: f for f in facts},
        incidents={i.id: i for i in incidents},
        actions={a.id: a for a in actions},
        **known,
    )


def deed(number: int, verb: str = "cordon", state: ActionState = ActionState.SUCCEEDED, at: float = NOW) -> Action:
    return Action(
        id=f"a{number}", incident="inc-1", decision="d", node="n1", verb=verb, planned_at=at, deadline=at, state=state
    )


def test_the_worst_is_first_and_a_test_last() -> None:
    fatal, warning = replace(FACT, id="f", severity=Severity.FATAL), replace(FACT, id="w", severity=Severity.WARNING)
    over = replace(fatal, id="o").cleared(NOW, "reset")
    found = [
        incident("drill", fatal, injected=True, at=NOW - 9),
        incident("old", over, at=NOW - 8),
        incident("young", at=NOW - 7),
        incident("theirs", at=NOW, state=IncidentState.WAITING),
        incident("warning", warning),
        incident("fatal", fatal),
        incident("rack", node="rack:r7", at=NOW - 1),
        incident("breaker", node=BREAKER, at=NOW - 2),
    ]
    ordered = render.order_worst_incidents(state(*found, facts=(fatal, warning, over)))
    names = [each.id.removeprefix("inc-") for each in ordered]
    assert names == ["breaker", "rack", "fatal", "warning", "theirs", "old", "young", "drill"]


def told(known: StateSnapshot, one: Incident, *decisions: Decision) -> Any:
    (found,) = render.incident_overviews([one], known, {each.id: each for each in decisions}, {})
    return found


def test_what_was_done_to_the_node_is_not_lost_among_messages() -> None:
    one = incident("1")
    aborts = tuple(deed(n, "abort", at=NOW + n) for n in range(1, 90))
    others = (deed(0), deed(90, "alert", at=NOW + 90), deed(91, "drain", ActionState.PLANNED))
    view = told(state(one, actions=(*others, *aborts, replace(deed(92), incident="inc-2"))), one)
    assert [each.verb for each in view.actions[:2]] == ["cordon", "abort"]
    assert view.actions[1].planned_at == NOW + 89, "the newest of what weighs the same"
    assert (len(view.actions), view.actions_more) == (render.ACTIONS_MAX, 91 - render.ACTIONS_MAX)


@given(st.integers(0, 60), st.integers(0, 5))
def test_live_findings_are_told_and_those_left_out_counted(live: int, over: int) -> None:
    facts = tuple(replace(FACT, id=f"f{n}") for n in range(live))
    cleared = tuple(replace(FACT, id=f"o{n}").cleared(NOW, "reset") for n in range(over))
    one = incident("1", *facts, *cleared, replace(FACT, id="forgotten"))
    view = told(state(one, facts=facts + cleared), one)
    assert len(view.findings) + view.findings_more == live
    assert len(view.findings) <= render.FINDINGS_MAX
    assert all(each.active for each in view.findings)


def test_of_decisions_only_the_one_in_force_is_told() -> None:
    one = incident("1", decisions=2)
    made = [
        Decision(
            id=f"inc-1.d{n}",
            at=NOW,
            incident="inc-1",
            node="n1",
            answer=Answer.WATCH,
            rule="r",
            reason="x",
            policy="p",
            findings=(),
        )
        for n in (1, 2)
    ]
    assert [each.id for each in told(state(one), one, *made).decisions] == ["inc-1.d2"]
    assert told(state(one), one).decisions == ()


def test_of_the_whole_cluster_comes_first_then_by_incident() -> None:
    blocked = ("mode is observe: x", "inc-1 on n1 is held", "inc-9 on n9 is not open any more", "inc-2 on n2 waits")
    ordered = render.order_blocked_reasons(blocked, [incident("2", node="n2"), incident("1")])
    assert ordered == [blocked[0], blocked[2], blocked[3], blocked[1]]


def heard(ages: dict[str, float], health: Health = Health.UNHEALTHY) -> ReportRegistry:
    report_registry = ReportRegistry()
    for node, age_s in ages.items():
        said = Report(
            version=1,
            node=node,
            boot_id="b",
            agent="a",
            seq=1,
            sent_at=NOW,
            ttl_s=30.0,
            health=health,
            gpus=(),
            ranks=(),
        )
        report_registry.take(said, NOW - age_s)
    return report_registry


NODES = {name: NodeRecord(node=name) for name in ("n1", "n2", "n3", "n4")} | {
    "old": NodeRecord(node="old", state=NodeState.RETIRED)
}


def test_how_much_is_young() -> None:
    report_registry = heard({"n1": 0.0, "n2": 30.0, "n3": 31.0, "old": 900.0})
    assert render.report_freshness_view(state(nodes=NODES), report_registry, NOW) == ReportFreshness(4, 2, 1, NOW - 31)
    assert render.report_freshness_view(state(nodes={}), ReportRegistry(), NOW) == ReportFreshness()


def test_what_is_unhealthy_without_an_incident_is_named() -> None:
    known = state(incident("1"), nodes=NODES)
    assert render.unhealthy_unassigned_nodes(known, heard({"n1": 0, "n3": 0, "n2": 31, "old": 0}), NOW) == NamedNodes(
        1, ("n3",)
    )
    many = {f"n{n:03}": 0.0 for n in range(50)}
    named = render.unhealthy_unassigned_nodes(state(nodes={n: NodeRecord(node=n) for n in many}), heard(many), NOW)
    assert (named.count, len(named.names), named.names[0]) == (50, render.NAMES_MAX, "n000")


def test_what_people_cordoned_is_named_and_what_we_or_nobody_holds_is_not() -> None:
    def hold(node: str, owner: HoldOwner, *, schedulable: bool | None = False) -> tuple[str, SchedulerNodeState]:
        return node, SchedulerNodeState(node, schedulable, owner=owner)

    holds = dict(
        [
            hold("n1", HoldOwner.OPERATOR),
            hold("n2", HoldOwner.US),
            hold("n3", HoldOwner.OPERATOR, schedulable=True),
            hold("n4", HoldOwner.OPERATOR, schedulable=None),
            hold("old", HoldOwner.OPERATOR),
            hold("stranger", HoldOwner.OPERATOR),
        ]
    )
    assert render.operator_cordoned_nodes(state(nodes=NODES, holds=holds)) == NamedNodes(1, ("n1",))


def test_silences_are_counted() -> None:
    one = AlertSilence("s", "*", "*", NOW, NOW + 60, "ann", "moving")
    assert render.silence_summary([one, replace(one, until=NOW + 5)]) == SilencedView(2, NOW + 5)
    assert render.silence_summary([]) == SilencedView()


@pytest.fixture(scope="module")
def centre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """One that asks people, with a fault on n1."""
    centre = Inside(tmp_path_factory.mktemp("centre"), mode=Mode.APPROVE)
    assert centre.call("POST", "/v1/nodes/n1/report", "n1", report(findings=(finding("n1"),))).status == 200
    yield centre
    centre.close()


def look(centre: Inside, query: str = "") -> Any:
    answer = centre.call("GET", f"/v1/overview{query}", "vic")
    assert answer.status == 200
    return answer.json()


def test_one_look_says_what_the_single_answers_say(centre: Inside) -> None:
    seen = look(centre)
    status = centre.call("GET", "/v1/status", "vic").json()
    ages = {"at"}
    assert {name: seen[name] for name in status.keys() - ages} == {name: status[name] for name in status.keys() - ages}
    (one,) = seen["incidents"]
    whole = centre.call("GET", f"/v1/incidents/{one['id']}", "vic").json()
    assert {name: one.get(name) for name in whole} == whole
    (node,) = seen["nodes"]
    assert node == next(each for each in centre.call("GET", "/v1/nodes", "vic").json()["nodes"] if each["node"] == "n1")
    assert seen["awaiting"] == centre.call("GET", "/v1/awaiting", "vic").json()["awaiting"]
    assert seen["heard"]["fresh"] == seen["heard"]["nodes"] == 1
    assert "lacking" not in seen


def test_so_many_incidents_as_are_asked_for(centre: Inside) -> None:
    seen = look(centre, "?incidents=0")
    assert (seen.get("incidents", []), seen["incidents_open"]) == ([], 1)
    assert seen["awaiting"], "what waits is told all the same"
    for wrong in ("-1", "101", "many"):
        assert centre.call("GET", f"/v1/overview?incidents={wrong}", "vic").status == 400


def test_without_the_database_the_rest_is_told(centre: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise OperationalError("SELECT", {}, Exception("the server is gone"))

    monkeypatch.setattr(HistoryQueries, "decisions", away)
    seen = look(centre)
    assert "the database does not answer" in seen["lacking"][0]
    assert "decisions" not in seen["incidents"][0]
    assert seen["awaiting"][0]["node"] == "n1"


def test_a_question_that_the_database_refuses_is_our_bug(centre: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise DataError("SELECT", {}, Exception("no such value"))

    monkeypatch.setattr(HistoryQueries, "decisions", refused)
    assert centre.call("GET", "/v1/overview", "vic").status == 500
