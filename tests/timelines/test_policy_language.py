"""What a playbook can say beyond the shipped ones: modes, approvals, guards, retries, branches, company, architecture."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from remediator.model.journal_records import Answer, IncidentState
from remediator.model.pipeline_inputs import FindingsReported, InventoryChanged, StepApproved
from remediator.model.plan_steps import Mode
from remediator.playbook.playbook_loader import load_policy
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Severity
from vocabulary.order import OrderState


def story(tmp_path: Path, rules: str, mode: Mode = Mode.ACT, nodes: int = 4) -> Story:
    path = tmp_path / "p.yaml"
    path.write_text(f"playbook: 1\nrules:\n{rules}")
    return Story(settings(policy=load_policy([path]), mode=mode), nodes=nodes)


def answers(told: Story) -> list[tuple[str, str]]:
    return [(d.rule, d.answer.value) for d in told.decisions.values()]


RESET = "  - {name: r, why: x, match: {findings: [xid/62]}, steps: [cordon, drain, %s, preflight, return_to_service]}\n"


def drained(told: Story) -> None:
    told.finding("xid/62", Severity.FATAL)
    told.scheduler_answers("cordon")
    told.after(1).hold(drained=True)
    told.after(1)


def test_observe_writes_down_what_it_would_do_and_nothing_else(tmp_path: Path) -> None:
    told = story(tmp_path, RESET % "reset_gpu", Mode.OBSERVE)
    told.finding("xid/62", Severity.FATAL)
    told.after(10)
    assert answers(told) == [("r", "observe")]
    assert not told.actions


def test_the_more_cautious_of_two_modes_counts(tmp_path: Path) -> None:
    told = story(tmp_path, (RESET % "reset_gpu").replace("why: x", "why: x, mode: recommend"), Mode.APPROVE)
    told.finding("xid/62", Severity.FATAL)
    assert answers(told) == [("r", "recommend")]


def test_telling_people_is_done_in_every_mode_but_observe(tmp_path: Path) -> None:
    rule = "  - {name: t, why: x, match: {findings: [fan/slow]}, steps: [{alert: the fan}, watch]}\n"
    for mode, told_at_all in [(Mode.RECOMMEND, True), (Mode.APPROVE, True), (Mode.OBSERVE, False)]:
        told = story(tmp_path, rule, mode)
        told.finding("fan/slow", Severity.WARNING)
        assert bool(told.actions) is told_at_all


def test_a_plan_waits_for_a_person_and_says_for_what(tmp_path: Path) -> None:
    told = story(tmp_path, RESET % "reset_gpu", Mode.APPROVE)
    told.finding("xid/62", Severity.FATAL)
    (incident,) = told.state.incidents.values()
    assert (incident.answer, incident.plan) == (Answer.APPROVE, ())
    told.submit(StepApproved(at=told.now, incident=incident.id, what="something else", actor="ann"))
    assert not told.actions
    told.submit(StepApproved(at=told.now, incident=incident.id, what=incident.decision, actor="ann"))
    assert answers(told) == [("r", "approve"), ("r", "act")]
    assert [e.actor for e in told.audit if e.kind == "approved"] == ["ann", "ann"]
    assert told.open_actions("cordon")


def test_one_step_waits_for_a_person_and_its_time_begins_then(tmp_path: Path) -> None:
    told = story(tmp_path, RESET % "{reset_gpu: , timeout_s: 60, mode: approve}")
    drained(told)
    told.after(3600)
    assert not told.open_actions("reset_gpu")
    (incident,) = told.state.incidents.values()
    told.submit(StepApproved(at=told.now, incident=incident.id, what=f"{incident.decision}.s2.0", actor="ann"))
    assert told.open_actions("reset_gpu")
    told.after(30)
    assert told.open_actions("reset_gpu")


def test_a_step_left_to_people_is_passed_by_and_said(tmp_path: Path) -> None:
    told = story(tmp_path, RESET % "{reset_gpu: , mode: recommend}")
    drained(told)
    assert not told.open_actions("reset_gpu")
    assert "step_left" in told.kinds()


def test_an_approval_does_not_outlive_its_decision(tmp_path: Path) -> None:
    worse = "  - {name: worse, why: x, match: {findings: [xid/79]}, steps: [cordon, replace]}\n"
    told = story(tmp_path, worse + RESET % "reset_gpu", Mode.APPROVE)
    told.finding("xid/62", Severity.FATAL)
    (incident,) = told.state.incidents.values()
    told.finding("xid/79", Severity.FATAL)
    told.submit(StepApproved(at=told.now, incident=incident.id, what=incident.decision, actor="ann"))
    assert answers(told) == [("r", "approve"), ("worse", "approve")]


def test_a_rules_guard_holds_it_back_until_it_passes(tmp_path: Path) -> None:
    told = story(tmp_path, (RESET % "reset_gpu").replace("why: x", "why: x, guards: {spares: 1}"), nodes=2)
    told.job("j", "n1", "n2")
    told.finding("xid/62", Severity.FATAL)
    assert answers(told) == [("r", "hold")]
    assert "refused spares: 0 free, 1 required" in next(iter(told.decisions.values())).reason
    told.no_job("n2")
    told.after(1)
    assert answers(told) == [("r", "hold"), ("r", "act")]


def test_a_steps_guard_waits_and_then_fails(tmp_path: Path) -> None:
    told = story(tmp_path, RESET % "{reset_gpu: , timeout_s: 60, guards: {idle: true}, on_failure: replace}")
    told.job("j", "n1")
    drained(told)
    told.after(30)
    assert not told.open_actions("reset_gpu")
    told.after(31)
    assert told.node_state() == "replacing"


def test_a_guard_on_history_ends_endless_repair(tmp_path: Path) -> None:
    limit = "history: [{of: [action/reset_gpu], at_most: 0, within_s: 86400}]"
    told = story(tmp_path, RESET % f"{{reset_gpu: , timeout_s: 60, guards: {{{limit}}}, on_failure: replace}}")
    for final in ("probation", "replacing"):
        drained(told)
        told.orders_end("reset_gpu")
        told.orders_end("run_preflight")
        for finding in told.state.active_on("n1"):
            told.clear(finding)
        told.after(1).scheduler_answers("resume")
        told.after(61)
        assert told.node_state() == final


def test_a_failed_step_is_tried_again_after_a_pause_and_then_takes_its_branch(tmp_path: Path) -> None:
    step = "{reset_gpu: , retry: {times: 1, after_s: 30}, on_failure: [{alert: it failed}, {preflight: gate}]}"
    told = story(tmp_path, RESET % step)
    drained(told)
    told.orders_end("reset_gpu", OrderState.FAILED)
    assert not told.open_actions("reset_gpu")
    told.after(31)
    assert len(told.open_actions("reset_gpu")) == 1
    told.orders_end("reset_gpu", OrderState.FAILED)
    told.after(1)
    assert [a.verb for a in told.actions.values()][-2:] == ["alert", "run_preflight"]
    assert len({a.id for a in told.actions.values()}) == len(told.actions)


def test_replacement_on_a_branch_ends_the_plan(tmp_path: Path) -> None:
    told = story(tmp_path, RESET % "{preflight: gate, on_failure: replace}")
    drained(told)
    told.orders_end("run_preflight", OrderState.FAILED)
    told.after(1)
    assert told.node_state() == "replacing"
    assert not told.open_actions("resume"), "a node that failed its test must not come back"
    for finding in told.state.active_on("n1"):
        told.clear(finding)
    told.after(1)
    assert not told.open_actions("resume")


def test_nobody_reached_is_no_reason_to_keep_a_bad_node(tmp_path: Path) -> None:
    steps = "[[cordon, {notify_trainer: abort, timeout_s: 60}], drain, replace]"
    told = story(tmp_path, f"  - {{name: r, why: x, steps: {steps}}}\n")
    told.job("j", "n1", "n2")
    told.finding("fan/slow", Severity.ERROR)
    told.scheduler_answers("cordon")
    told.after(61)
    assert told.state.incident_of("n1").state is IncidentState.ACTING  # type: ignore[union-attr]  # it is there
    told.after(1).hold(drained=True)
    assert told.node_state() == "replacing"


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ("architectures: [hopper]", True),
        ("architectures: [blackwell, ampere]", False),
        ("components: [gpu]", True),
        ("components: [nvlink]", False),
        ("evidence: {unit: [SRAM]}", True),
        ("evidence: {unit: [DRAM]}", False),
        ("evidence: {bank: [1]}", False),
        ("job: running", True),
        ("job: none", False),
        ("node_states: [healthy, probation]", True),
        ("node_states: [quarantined]", False),
        ("together: {all: [row_remap/*]}", True),
        ("together: {all: [row_remap/*, xid/94]}", False),
        ("together: {any: [xid/94, row_remap/pending]}", True),
        ("together: {none: [row_remap/pending]}", False),
        ("history: [{at_least: 1, within_s: 60}]", True),
        ("history: [{at_least: 2, within_s: 60}]", False),
        ("history: [{of: [row_remap/*], at_most: 0, within_s: 60}]", False),
    ],
)
def test_every_condition_of_a_match_decides(tmp_path: Path, match: str, fits: bool) -> None:  # noqa: FBT001 - a parameter of the test
    rule = f"  - {{name: r, why: x, match: {{findings: [xid/48], {match}}}, steps: [cordon, replace]}}\n"
    told = story(tmp_path, rule)
    told.submit(InventoryChanged(at=told.now, node="n1", products=("NVIDIA H100 80GB HBM3",)))
    told.job("j", "n1")
    told.finding("row_remap/pending", Severity.INFO)
    told.finding("xid/48", Severity.FATAL, evidence={"unit": "SRAM"})
    assert [rule for rule, _ in answers(told)] == (["r"] if fits else [])


def test_a_decision_says_what_else_was_considered_and_why_not(tmp_path: Path) -> None:
    rules = (
        "  - {name: rare, why: x, match: {findings: [xid/62], history: [{at_least: 9, within_s: 60}]}, steps: [cordon, replace]}\n"
        + RESET % "reset_gpu"
        + "  - {name: later, why: x, match: {findings: [xid/*]}, steps: [watch]}\n"
    )
    told = story(tmp_path, rules)
    told.finding("xid/62", Severity.FATAL)
    (decision,) = told.decisions.values()
    assert [(c.rule, c.why) for c in decision.considered] == [
        ("rare", "1 so far, required at least 9 of the same per node in 1 min"),
        ("later", "r takes precedence"),
    ]


def test_an_info_finding_opens_an_incident_only_where_the_policy_has_a_plan(tmp_path: Path) -> None:
    told = story(
        tmp_path, "  - {name: two, why: x, match: {history: [{at_least: 2, within_s: 60}]}, steps: [{alert: twice}]}\n"
    )
    told.finding("xid/31", Severity.INFO)
    assert not told.incidents
    told.finding("xid/31", Severity.INFO)
    assert answers(told) == [("two", "act")]
    told.after(899)
    assert told.state.incidents, "people were told, and it may come again"
    told.after(1)
    assert not told.state.incidents


def test_what_was_told_as_mild_is_told_anew_when_it_turns_grave(tmp_path: Path) -> None:
    told = story(tmp_path, "  - {name: t, why: x, steps: [{alert: look}]}\n")
    finding = told.finding("fan/slow", Severity.WARNING)
    assert len(told.actions) == 1
    graver = replace(finding, severity=Severity.FATAL)
    told.submit(FindingsReported(at=told.now + 1, node="n1", boot_id="b", changes=(graver,)))
    assert len(told.incidents) == 1
    assert len(told.actions) == 2
