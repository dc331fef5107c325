"""A second fact, a second hand, a second node, while something is under way."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from remediator.model.journal_records import Answer, IncidentState
from remediator.model.pipeline_inputs import FindingsReported, IncidentCommand, IncidentCommandKind
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import HoldOwner
from remediator.playbook.playbook_loader import load_policy
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Finding, Severity
from vocabulary.order import OrderKind

GRACEFUL, ABORT = OrderKind.CHECKPOINT_THEN_EJECT.value, OrderKind.ABORT.value


def test_a_mild_fact_seen_first_does_not_hide_a_grave_one() -> None:
    story = Story()
    story.finding("kernel_log/overrun", Severity.WARNING)
    story.finding("xid/48", Severity.FATAL)
    assert [d.answer for d in story.decisions.values()] == [Answer.ACT, Answer.ACT]
    assert story.open_actions("cordon")


def test_a_mild_fact_seen_later_does_not_derail_a_plan() -> None:
    story = Story()
    story.job("j1", "n1", "n2")
    story.finding("sxid/20034", Severity.ERROR)
    story.finding("beacon/corrupt", Severity.WARNING)
    assert [d.answer for d in story.decisions.values()] == [Answer.ACT]
    assert len(story.open_actions(GRACEFUL)) == 2
    assert not story.open_actions(ABORT)


def test_an_operator_who_gives_a_node_back_ends_its_incident_and_the_next_fault_is_seen() -> None:
    story = Story()
    story.hold("n1", owner=HoldOwner.OPERATOR)
    finding = story.finding("xid/79", Severity.FATAL)
    story.after(1)
    assert next(iter(story.state.incidents.values())).state is IncidentState.WAITING
    story.clear(finding)
    story.after(1).hold("n1", owner=HoldOwner.NOBODY, schedulable=True)
    assert not story.state.incidents
    story.finding("xid/79", Severity.FATAL)
    assert story.open_actions("cordon")


def test_an_operator_who_takes_over_our_hold_has_the_node() -> None:
    story = Story()
    story.finding("row_remap/pending", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.after(5).hold(owner=HoldOwner.OPERATOR, drained=True)
    assert story.node_state() == "operator-held"
    story.after(5)
    assert not story.open_actions("reset_gpu")


def test_a_plan_that_does_not_fit_a_nodes_life_is_a_persons_and_starves_nobody() -> None:
    story = Story()
    story.finding("xid/79", Severity.FATAL, node="n1")
    story.finding("xid/79", Severity.FATAL, node="n2")
    story.state.put_node(replace(story.state.nodes["n1"], state=NodeState.RETIRED))
    story.scheduler_answers("cordon", node="n1")
    story.scheduler_answers("cordon", node="n2")
    assert story.state.incident_of("n1").state is IncidentState.WAITING  # type: ignore[union-attr]  # it is there
    assert story.node_state("n2") == "replacing"


def test_no_node_speaks_for_anothers_finding() -> None:
    story = Story()
    finding = story.finding("xid/79", Severity.FATAL, node="n1")
    forged = replace(finding.cleared(story.now, "me"), node="n2")
    story.submit(FindingsReported(at=story.now, node="n2", boot_id="b", changes=(forged,)))
    assert story.state.active_on("n1") == [finding]
    assert "finding_refused" in story.kinds()


def test_a_lesser_fact_on_the_last_metres_of_a_return_is_an_incident_of_its_own() -> None:
    story = Story()
    finding = story.finding("fan/slow", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    story.orders_end("run_preflight")
    story.clear(finding)
    assert story.open_actions("resume")
    story.finding("fan/stopped", Severity.WARNING)
    story.scheduler_answers("resume")
    story.after(0.25).after(0.25)
    assert story.node_state() == "probation"
    assert len(story.incidents) == 2


def raised_to(story: Story, finding: Finding, severity: Severity) -> Finding:
    graver = replace(finding, severity=severity, count=finding.count + 1, last_seen=story.now)
    story.submit(FindingsReported(at=story.now, node="n1", boot_id="b", changes=(graver,)))
    return graver


def test_a_settled_warning_that_rises_acts() -> None:
    story = Story()
    mild = story.finding("fan/slow", Severity.WARNING)
    incident = story.state.incident_of("n1")
    assert incident is not None
    story.state.put_incident(replace(incident, state=IncidentState.WAITING))
    story.submit(
        IncidentCommand(at=story.now, incident=incident.id, node="n1", word=IncidentCommandKind.RESOLVE, actor="ann")
    )
    story.after(600)
    assert not story.state.incidents
    raised_to(story, mild, Severity.FATAL)
    assert story.open_actions("cordon")


def test_a_warning_that_rises_while_another_plan_runs_is_answered_after_it(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "playbook: 1\nrules:\n"
        "  - {name: told, why: x, match: {findings: [training/*]}, steps: [{notify_trainer: save_and_relaunch}]}\n"
        "  - {name: out, why: x, match: {findings: [fan/*], severities: [fatal]}, steps: [cordon, replace]}\n"
        "  - {name: rest, why: x, steps: [watch]}\n"
    )
    story = Story(settings(policy=load_policy([path])))
    story.job("j", "n1")
    mild = story.finding("fan/slow", Severity.WARNING)
    story.finding("training/throughput_low", Severity.ERROR)
    assert story.open_actions(GRACEFUL)
    raised_to(story, mild, Severity.FATAL)
    assert not story.open_actions("cordon"), "what was begun is finished first"
    story.orders_end(GRACEFUL)
    story.after(1)
    assert story.open_actions("cordon")
