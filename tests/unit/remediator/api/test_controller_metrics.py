"""The controller's page, whole: what dashboards and rules may name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from remediator.api.fleet_metrics import SHOWN_MAX, collect_fleet_metrics
from remediator.decisions.isolation_budget import IsolationBudget
from remediator.engine.decision_engine import StateSnapshot
from remediator.engine.term_counters import TermCounters
from remediator.fleet.report_registry import ReportEntry
from remediator.model.journal_records import (
    Action,
    ActionState,
    Answer,
    AuditEvent,
    Decision,
    Incident,
    IncidentState,
    JobRef,
    NodeRecord,
)
from remediator.model.node_location import NodeLocation
from remediator.model.pipeline_inputs import Tick
from remediator.model.plan_steps import Mode
from remediator.model.rule_conditions import NodeState
from remediator.notifications.alert_settings import AlertSettings
from remediator.state.state_changes import StateChanges
from tests.unit.remediator.api.in_process_controller import Inside
from vocabulary.finding import Finding, Severity
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import Gpu, Versions

NOW = 10_000.0
HOSTILE = 'a"} 1\nremediator_leading 0'


def entry(node: str, seen_at: float, health: Health = Health.HEALTHY) -> ReportEntry:
    gpus = tuple(Gpu(i, f"GPU-{node}-{i}", f"0000:1{i}:00.0", "NVIDIA H100 80GB HBM3", "") for i in range(8))
    return ReportEntry(
        node, "b", "a", 1, 1, seen_at, seen_at, 30.0, health, gpus, (), (JobRef("j", 1),), (), Versions()
    )


def finding(check: str, code: str, **more: object) -> Finding:
    return Finding(
        id=f"{check}/{code}",
        node="n2",
        check=check,
        code=code,
        component=Component(ComponentKind.GPU, name="GPU-n2-1"),
        severity=Severity.WARNING,
        summary="…",
        first_seen=9000.0,
        last_seen=9000.0,
        origin="b:1",
        **more,  # type: ignore[arg-type] # the rest of the record
    )


def snapshot() -> StateSnapshot:
    held = NodeRecord(
        "n2", NodeState.QUARANTINED, 9100.0, "xid", held=True, isolated_at=9100.0, places=NodeLocation(rack="r7")
    )
    incident = Incident(
        id="i1", node="n2", title=HOSTILE, opened_at=9050.0, state=IncidentState.ACTING, answer=Answer.ACT
    )
    action = Action(
        id="i1.a1", incident="i1", decision="i1.d1", node="n2", verb="cordon", planned_at=9990.0, deadline=10_500.0
    )
    slow = finding("straggler", "gpu", evidence={"job": "train", "slowdown": 0.31, "confirmed": "unknown"})
    xid = finding("xid", "79")
    over = finding("xid", "31").cleared(9500.0, "over")
    return StateSnapshot(
        nodes={"n1": NodeRecord("n1"), "n2": held},
        findings={each.id: each for each in (slow, xid, over)},
        incidents={incident.id: incident},
        actions={action.id: action},
        holds={},
    )


class Page(Collector):
    def __init__(self, shown: StateSnapshot) -> None:
        settings = SimpleNamespace(mode=Mode.APPROVE, budget=IsolationBudget())
        self.engine = SimpleNamespace(snapshot=shown, settings=settings, waiting=3)

    def collect(self) -> Iterator[Metric]:
        yield from collect_fleet_metrics(self.engine, [entry("n1", NOW - 5), entry("n2", NOW - 100)], NOW)  # type: ignore[arg-type] # its three words


def page_of(shown: StateSnapshot) -> str:
    registry = CollectorRegistry()
    registry.register(Page(shown))
    return generate_latest(registry).decode()


def tally() -> TermCounters:
    counted = TermCounters()
    planned = snapshot().actions["i1.a1"]
    done = Action(
        id="i1.a1",
        incident="i1",
        decision="i1.d1",
        node="n2",
        verb="cordon",
        planned_at=9990.0,
        deadline=10_500.0,
        state=ActionState.SUCCEEDED,
        finished_at=9990.2,
    )
    decision = Decision(
        id="i1.d1",
        incident="i1",
        node="n2",
        at=9060.0,
        answer=Answer.ACT,
        rule="gpu-lost",
        reason="…",
        policy="p",
        findings=(),
    )
    opened = AuditEvent(at=9050.0, kind="incident_opened", text="…")
    counted.count(StateChanges(audit=[opened], decisions={decision.id: decision}, actions={planned.id: planned}))
    counted.count(StateChanges(actions={done.id: done}))
    counted.count(StateChanges(actions={done.id: done}))  # written again, with its incident
    return counted


def test_the_whole_page_of_a_fleet(golden: Callable[[str, str], None]) -> None:
    lines = (page_of(snapshot()) + generate_latest(tally().registry).decode()).splitlines()
    kept = [line for line in lines if "_created" not in line and not line.startswith("remediator_build_info{")]
    golden("remediator/fleet.prom", "".join(f"{line}\n" for line in kept))


def test_what_a_node_says_stays_within_its_label() -> None:
    assert "\nremediator_leading" not in page_of(snapshot())


def test_a_fleet_that_is_out_whole_has_a_page_of_bounded_length() -> None:
    out = {f"n{i}": NodeRecord(f"n{i}", NodeState.SUSPECT, float(i)) for i in range(3 * SHOWN_MAX)}
    page = page_of(StateSnapshot(nodes=out, findings={}, incidents={}, actions={}, holds={}))
    rows = [line for line in page.splitlines() if line.startswith("remediator_node_since_timestamp_seconds{")]
    assert len(rows) == SHOWN_MAX
    assert f'node="n{3 * SHOWN_MAX - 1}"' in page, "the newest are shown"


def test_an_ended_action_of_a_closed_incident_is_forgotten() -> None:
    counted = tally()
    assert counted._ended
    closed = Incident(id="i1", node="n2", title="…", opened_at=1.0, state=IncidentState.CLOSED, closed_at=2.0)
    counted.count(StateChanges(incidents={closed.id: closed}))
    assert not counted._ended


def test_a_whole_centre_tells_its_name_mode_and_counters(shared: Inside) -> None:
    shared.service.engine.submit_durably(Tick(at=shared.service.clock.wall())).result(
        60
    )  # what was before it is written
    page = shared.call("GET", "/metrics").body.decode()
    assert 'remediator_mode{mode="recommend"} 1.0' in page
    assert 'remediator_audit_events_total{drill="false",kind="policy"} 1.0' in page


def test_the_mode_on_the_page_is_the_one_in_force(tmp_path: Path) -> None:
    centre = Inside(tmp_path, mode=Mode.ACT)
    try:
        wish = {"mode": "observe", "text": "the network is being worked on"}
        assert centre.call("POST", "/v1/mode", "ann", wish).status < 300
        assert 'remediator_mode{mode="observe"} 1.0' in centre.call("GET", "/metrics").body.decode()
    finally:
        centre.close()


def test_the_page_of_a_centre_that_has_just_begun(golden: Callable[[str, str], None], tmp_path: Path) -> None:
    centre = Inside(tmp_path, alerts=AlertSettings(webhooks=("http://127.0.0.1:9/",)))
    try:
        page = centre.call("GET", "/metrics").body.decode()
    finally:
        centre.close()
    of_the_fleet = set(re.findall(r"^# TYPE (\S+)", page_of(snapshot()), re.MULTILINE))
    rows = []
    for row in page.partition("# HELP remediator_audit_events_total")[0].splitlines():  # the counters are shown above
        name = re.match(r"(?:# (?:HELP|TYPE) )?(\w+)", row)
        if name is not None and name[1] not in of_the_fleet:
            rows.append(re.sub(r"^(remediator_batch_age_seconds) .*", r"\1 0.0", row))
    golden("remediator/centre.prom", "".join(f"{row}\n" for row in rows))
