"""Ways that a reviewer found to make the engine decide wrongly; each must stay closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from remediator.decisions.isolation_budget import level_only_budget
from remediator.model.journal_records import IncidentState
from remediator.model.pipeline_inputs import FindingsReported, PolicyChanged, StepApproved
from remediator.model.plan_steps import Mode
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import HoldOwner
from remediator.playbook.playbook_loader import load_policy
from tests.timelines.timeline import GPU, Story, settings
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.order import OrderState


def policy_of(tmp_path: Path, rules: str, name: str = "p") -> object:
    path = tmp_path / f"{name}.yaml"
    path.write_text(f"playbook: 1\nrules:\n{rules}")
    return load_policy([path])


def reload(story: Story, policy: object) -> None:
    story.rules = settings(policy=policy, mode=story.rules.mode)
    story.submit(PolicyChanged(at=story.now, digest="d", source="p", mode=story.rules.mode))


def test_an_alert_in_place_of_a_passed_test_brings_nobody_back(tmp_path: Path) -> None:
    rule = "  - {name: r, why: x, steps: [drain, {preflight: gate, on_failure: {alert: oops}}, return_to_service]}\n"
    story = Story(settings(policy=policy_of(tmp_path, rule)))
    finding = story.finding("fan/slow", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    story.orders_end("run_preflight", OrderState.FAILED)
    story.clear(finding)
    story.after(1)
    assert not story.open_actions("resume")
    assert story.state.nodes["n1"].held
    assert story.state.incident_of("n1").state is IncidentState.WAITING  # type: ignore[union-attr]  # it is there


def test_the_budget_counts_when_nodes_are_taken_not_when_it_was_decided(tmp_path: Path) -> None:
    rule = "  - {name: r, why: x, steps: [{alert: soon}, cordon, drain, preflight, return_to_service]}\n"
    story = Story(settings(policy=policy_of(tmp_path, rule), budget=level_only_budget(1)), nodes=6)
    for n in range(1, 6):
        story.finding("fan/slow", Severity.ERROR, node=f"n{n}")
    story.after(1)
    assert sum(node.held for node in story.state.nodes.values()) == 1


def test_a_node_that_waits_for_a_new_part_is_not_brought_back_by_another_repair() -> None:
    story = Story()
    story.finding("xid/110", Severity.FATAL)
    story.scheduler_answers("cordon")
    assert story.node_state() == "replacing"
    story.finding("xid/154", Severity.ERROR, evidence={"action": "drain_and_reset"})
    story.after(1)
    assert story.node_state() == "replacing"
    assert not story.open_actions("reset_gpu")


def test_a_trainer_that_does_not_answer_keeps_no_bad_node_in_service_and_no_part_from_being_ordered() -> None:
    story = Story()
    story.job("j", "n1", "n2")
    story.finding("xid/79", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.after(121)
    assert story.node_state() == "replacing"
    assert "ticket" in {a.verb for a in story.actions.values()}


def test_people_are_told_when_it_is_their_turn() -> None:
    story = Story()
    story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    story.orders_end("reset_gpu", OrderState.REFUSED)
    story.after(31).orders_end("reset_gpu", OrderState.REFUSED)
    story.orders_end("reboot", OrderState.REFUSED)
    assert [a.data["how"] for a in story.actions.values() if a.verb == "alert"] == [
        "needs a person: waits for replacement"
    ]


def test_an_old_watch_silences_nothing_that_comes_later() -> None:
    story = Story()
    story.finding("row_remap/spares", Severity.WARNING)
    story.after(3600)
    story.finding("throttle/hw_thermal", Severity.WARNING)
    story.after(3600)
    story.finding("xid/4711", Severity.UNCLASSIFIED)
    assert [d.rule for d in story.decisions.values()] == ["memory-wears", "slowed-for-protection", "unknown"]
    assert {"ticket", "alert"} <= {a.verb for a in story.actions.values()}
    story.after(60)
    assert len(story.decisions) == 3, "each is told once"


def test_a_reload_in_the_middle_of_a_plan_finishes_what_was_begun(tmp_path: Path) -> None:
    plan = "steps: [cordon, drain, preflight, return_to_service]"
    story = Story(settings(policy=policy_of(tmp_path, f"  - {{name: old, why: x, {plan}}}\n", "a")))
    story.finding("fan/slow", Severity.ERROR)
    story.scheduler_answers("cordon")
    reload(story, policy_of(tmp_path, f"  - {{name: new, why: x, {plan}}}\n", "b"))
    story.after(1)
    assert [d.rule for d in story.decisions.values()] == ["old"]
    story.hold(drained=True)
    assert story.open_actions("run_preflight")


def test_a_reload_reaches_incidents_that_are_open(tmp_path: Path) -> None:
    story = Story(settings(policy=policy_of(tmp_path, "  - {name: rest, why: x, steps: [watch]}\n", "a")))
    story.finding("fan/slow", Severity.FATAL)
    rules = (
        "  - {name: act-now, why: x, match: {findings: [fan/*]}, steps: [cordon, replace]}\n  - {name: rest, why: x}\n"
    )
    reload(story, policy_of(tmp_path, rules, "b"))
    assert [d.rule for d in story.decisions.values()] == ["rest", "act-now"]


def test_an_approval_is_for_the_plan_that_was_shown(tmp_path: Path) -> None:
    rule = "  - {name: r, why: x, steps: [cordon, %s]}\n"
    story = Story(settings(policy=policy_of(tmp_path, rule % "replace", "a"), mode=Mode.APPROVE))
    story.finding("fan/slow", Severity.ERROR)
    incident = story.state.incident_of("n1")
    assert incident is not None
    reload(story, policy_of(tmp_path, rule % "drain, reboot, preflight, return_to_service", "b"))
    story.submit(StepApproved(at=story.now, incident=incident.id, what=incident.decision, actor="ann"))
    assert not story.actions
    assert [d.answer.value for d in story.decisions.values()] == ["approve", "approve"]


def test_an_approval_of_what_nothing_asserts_still_counts_after_five_minutes() -> None:
    story = Story(settings(mode=Mode.APPROVE))
    for job in ("a", "b", "c"):
        story.job(job, "n1", "n2")
        story.finding("xid/13", Severity.INFO)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.rule == "node-at-fault"
    story.after(4000)
    story.submit(StepApproved(at=story.now, incident=incident.id, what=incident.decision, actor="ann"))
    assert story.open_actions("cordon")


def test_a_plan_that_ends_with_the_node_still_out_is_a_persons(tmp_path: Path) -> None:
    rule = "  - {name: r, why: x, steps: [drain, {preflight: gate}, {ticket: look}]}\n"
    story = Story(settings(policy=policy_of(tmp_path, rule)))
    story.finding("fan/slow", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    story.orders_end("run_preflight")
    assert story.state.incident_of("n1").state is IncidentState.WAITING  # type: ignore[union-attr]  # it is there


def test_one_incident_that_prints_three_memory_errors_is_one_repair() -> None:
    story = Story()
    for code in ("48", "64", "95"):
        story.finding(f"xid/{code}", Severity.FATAL)
    assert [d.rule for d in story.decisions.values()] == ["uncorrectable-memory-error"]


def test_drills_do_not_wear_a_node_out() -> None:
    story = Story()
    for _ in range(4):
        finding = story.finding("xid/62", Severity.FATAL, injected=True)
        story.scheduler_answers("cordon")
        story.after(1).hold(drained=True)
        story.orders_end("reset_gpu")
        story.clear(finding)
        story.orders_end("run_preflight")
        story.scheduler_answers("resume")
        story.after(90_000)
    assert "repairs-do-not-help" in {d.rule for d in story.decisions.values()}, "among drills they count"
    story.hold(schedulable=True, owner=HoldOwner.NOBODY)
    story.finding("xid/62", Severity.FATAL)
    assert list(story.decisions.values())[-1].rule == "gpu-needs-reset"


def test_a_switch_takes_all_gpus_along() -> None:
    story = Story()
    story.finding("xid/45", Severity.INFO)
    story.finding("sxid/12020", Severity.FATAL, component=Component(ComponentKind.NVSWITCH, "nvswitch1"))
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    assert [a.order.gpu for a in story.open_actions("reset_gpu") if a.order] == ["all"]


def test_only_what_is_ill_is_reset() -> None:
    story = Story()
    other = Component(ComponentKind.GPU, "GPU-other", "0000:4b:00.0", 1)
    story.finding("xid/63", Severity.INFO, component=other)
    story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    assert [a.order.gpu for a in story.open_actions("reset_gpu") if a.order] == [GPU.name]


def test_five_stragglers_do_not_share_one_spare() -> None:
    story = Story(settings(budget=level_only_budget(9)), nodes=6)
    story.job("j", "n1", "n2", "n3", "n4", "n5")
    for n in range(1, 6):
        story.finding("straggler/node", Severity.ERROR, node=f"n{n}")
    assert sum(node.held for node in story.state.nodes.values()) == 1


def test_what_a_node_asserts_again_holds_again() -> None:
    story = Story()
    finding = story.finding("fan/slow", Severity.ERROR)
    story.submit(FindingsReported(at=story.now + 1, node="n1", boot_id="b", active=()))
    assert not story.state.findings[finding.id].active
    story.submit(FindingsReported(at=story.now + 2, node="n1", boot_id="b", active=(finding,)))
    assert story.state.findings[finding.id].active


@pytest.mark.parametrize("state", [NodeState.REPLACING, NodeState.DRAINING])
def test_a_late_copy_of_a_cleared_finding_opens_nothing_within_the_hour(state: NodeState) -> None:
    story = Story()
    finding = story.finding("fan/slow", Severity.WARNING)
    story.clear(finding)
    story.after(1800)
    story.submit(FindingsReported(at=story.now, node="n1", boot_id="b", changes=(finding,)))
    assert not story.state.incidents, state


def test_an_incident_that_waits_for_weeks_stays_readable() -> None:
    story = Story(settings(mode=Mode.RECOMMEND))
    story.finding("xid/79", Severity.FATAL)
    for _ in range(250):
        story.finding("xid/63", Severity.INFO)
    grave = story.finding("xid/48", Severity.FATAL)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert len(incident.findings) == 201
    assert grave.id in incident.findings


def test_a_real_fault_never_hides_behind_a_drill() -> None:
    story = Story()
    story.finding("fan/slow", Severity.WARNING, injected=True)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.injected
    story.finding("xid/63", Severity.INFO)
    assert story.state.incidents[incident.id].injected, "what is only recorded makes no drill real"
    story.finding("xid/62", Severity.FATAL)
    assert not story.state.incidents[incident.id].injected
    decided = [e for e in story.audit if e.kind == "decision"]
    assert (decided[0].injected, decided[-1].injected) == (True, False)
    raised = [(e.data["kind"], e.injected) for e in story.audit if e.kind == "finding_raised"]
    assert raised == [("fan/slow", True), ("xid/63", False), ("xid/62", False)], (
        "a finding's line speaks of the finding"
    )


def test_a_drill_among_real_faults_makes_none_of_them_a_drill() -> None:
    story = Story()
    story.finding("fan/slow", Severity.WARNING)
    story.finding("xid/62", Severity.FATAL, injected=True)
    assert not any(i.injected for i in story.state.incidents.values())
