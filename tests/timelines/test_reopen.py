"""The same fault after a person's word: the word counts against what was known and for a quiet time, and then a fatal one acts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as tries
from hypothesis import strategies as st
from msgspec.structs import replace

from remediator.incidents import reopen_rules
from remediator.model.finding_settlement import Settlement
from remediator.model.journal_records import Answer, Incident, IncidentState
from remediator.model.pipeline_inputs import (
    FindingsReported,
    IncidentCommand,
    IncidentCommandKind,
    IncidentReopened,
    ManualCordon,
    ManualCordonKind,
    NodeCommand,
    NodeCommandKind,
)
from remediator.model.plan_steps import Mode
from remediator.model.scheduler_hold import HoldOwner
from remediator.pipeline import apply_input
from remediator.playbook.playbook_loader import load_policy
from remediator.replay.journal_replay import replay_decisions
from remediator.state.cluster_state import ClusterState
from remediator.store.journal import Journal
from tests.timelines.timeline import START, Story, settings
from vocabulary.finding import Finding, Severity

QUIET_S = 900.0
HOUR_S = 3600.0


def seen(story: Story, finding: Finding, times: int = 1) -> Finding:
    """The node sees it once more, and says so."""
    finding = finding.seen_again(story.now, times)
    tell(story, finding)
    return finding


def tell(story: Story, finding: Finding) -> None:
    asserted = {f.id: f for f in story.state.active_on(finding.node)} | {finding.id: finding}
    active = tuple(asserted.values())
    story.submit(FindingsReported(at=story.now, node=finding.node, boot_id="b", changes=(finding,), active=active))


def resolve(story: Story) -> Incident:
    incident = story.state.incident_of("n1")
    assert incident is not None
    word = IncidentCommandKind.RESOLVE
    story.submit(IncidentCommand(at=story.now, incident=incident.id, word=word, actor="ann", node="n1"))
    assert story.state.incident_of("n1") is None
    return incident


def resolved(story: Story, kind: str = "xid/79", severity: Severity = Severity.FATAL) -> tuple[Finding, Incident]:
    """A fault on n1 that a person has said is over; it is still asserted. Automation only looked on so far."""
    act, story.rules = story.rules, replace(story.rules, mode=Mode.RECOMMEND)
    finding = story.finding(kind, severity)
    story.rules = act
    return finding, resolve(story)


def uncordoned(story: Story) -> tuple[Finding, Incident]:
    """A fault on n1 that we took out, and that a person uncordoned, against all that is known."""
    finding = story.finding("xid/79", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.hold()
    before = story.state.incident_of("n1")
    assert before is not None
    story.submit(ManualCordon(at=story.now, node="n1", word=ManualCordonKind.UNCORDON, actor="ann", text="fixed"))
    story.scheduler_answers("uncordon_by_hand")
    story.hold(owner=HoldOwner.NOBODY, schedulable=True)
    return finding, before


def test_a_stream_within_the_quiet_time_undoes_no_word() -> None:
    story = Story()
    finding, _ = resolved(story)
    for _ in range(int(QUIET_S) // 60):
        story.after(60)
        finding = seen(story, finding, 40)
    assert not story.state.incidents
    assert not story.state.held
    assert story.state.findings[finding.id].count == 601, "it is counted all the same"
    story.after(1)
    seen(story, finding)
    assert story.state.held == {"n1"}


def test_it_joins_no_other_incident_within_the_quiet_time() -> None:
    story = Story()
    finding, _ = resolved(story)
    story.after(60).finding("throttle/thermal", Severity.WARNING)
    seen(story, finding)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert finding.id not in incident.findings
    assert not story.state.held


def test_what_lasts_unchanged_stays_as_the_person_left_it() -> None:
    story = Story()
    finding, _ = resolved(story)
    for _ in range(48):
        story.after(HOUR_S)
        tell(story, finding)
    assert not story.state.incidents
    assert not story.state.held


def test_what_went_away_in_between_is_news_at_once() -> None:
    story = Story()
    finding, _ = resolved(story)
    story.clear(finding, "boot c")
    story.after(60).finding("xid/79", Severity.FATAL)
    assert story.state.held == {"n1"}


def test_a_fatal_fault_that_is_seen_again_is_decided_upon_afresh_and_names_the_word() -> None:
    story = Story()
    finding, before = resolved(story)
    story.after(2 * HOUR_S)
    seen(story, finding)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.id != before.id
    assert incident.findings == (finding.id,)
    words = f"again 2 h 0 min after ann resolved it ({before.id})"
    assert incident.title == f"xid/79 on {finding.component}, {words}: xid/79 was seen"
    decision = story.decisions[incident.decision]
    assert decision.answer is Answer.ACT
    assert words in decision.reason
    assert any(event.kind == "finding_again" and words in event.text for event in story.audit)
    assert story.open_actions("cordon"), "and acted upon"


def test_after_an_uncordon_too_and_the_word_is_named() -> None:
    story = Story()
    finding, before = uncordoned(story)
    assert story.node_state() == "probation"
    story.after(60)
    finding = seen(story, finding)
    assert not story.state.incidents, "the quiet time"
    story.after(2 * HOUR_S)
    seen(story, finding)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert f"after ann uncordoned it ({before.id})" in incident.title
    assert story.open_actions("cordon")


def test_after_a_hold_was_lifted_in_the_scheduler_too() -> None:
    story = Story()
    finding = story.finding("xid/79", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.after(5).hold(schedulable=True, owner=HoldOwner.NOBODY)
    finding = seen(story.after(QUIET_S), finding)
    assert not story.state.incidents
    seen(story.after(1), finding)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert "after an operator lifted the controller's hold" in incident.title


def test_what_is_not_fatal_is_counted_and_shown_and_no_more() -> None:
    story = Story()
    finding, _ = resolved(story, "row_remap/pending", Severity.ERROR)
    seen(story.after(2 * HOUR_S), finding)
    assert not story.state.incidents
    assert story.state.findings[finding.id].count == 2
    graver = replace(finding, severity=Severity.FATAL, count=3)
    tell(story, graver)
    assert story.state.incidents, "but graver is news, as ever"


def test_a_late_report_of_what_was_seen_before_undoes_no_word() -> None:
    story = Story()
    finding, _ = resolved(story)
    story.after(2 * HOUR_S)
    tell(story, finding.seen_again(START + QUIET_S, 5))
    assert not story.state.incidents


def test_in_the_mode_observe_it_is_decided_upon_and_nothing_is_done() -> None:
    story = Story()
    finding, _ = resolved(story)
    story.rules = settings(mode=Mode.OBSERVE)
    seen(story.after(2 * HOUR_S), finding)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.answer is Answer.OBSERVE
    assert not story.state.held


def test_the_budget_holds_it_back_as_anything_else() -> None:
    story = Story()
    finding, _ = resolved(story)
    for node in ("n3", "n4"):
        story.finding("xid/79", Severity.FATAL, node=node)
    seen(story.after(2 * HOUR_S), finding)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.answer is Answer.BLOCKED
    assert story.state.held == {"n3", "n4"}


def test_on_a_node_that_is_a_persons_the_word_goes_on_counting_and_giving_it_back_is_another() -> None:
    story = Story()
    finding, _ = resolved(story)
    story.hold(owner=HoldOwner.OPERATOR)
    finding = seen(story.after(2 * HOUR_S), finding)
    assert not story.state.incidents, "they have it in hand"
    story.hold(owner=HoldOwner.NOBODY, schedulable=True)
    finding = seen(story.after(QUIET_S), finding)
    assert not story.state.incidents, "and gave it back knowing that"
    seen(story.after(1), finding)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert "after the operator released it" in incident.title


def test_a_release_is_a_word_and_the_end_of_its_time_is_none() -> None:
    story = Story()
    finding, _ = resolved(story)
    hold = NodeCommand(at=story.now, node="n1", word=NodeCommandKind.HOLD, actor="kim")
    story.submit(replace(hold, until=story.now + HOUR_S))
    finding = seen(story.after(HOUR_S), finding)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert "after ann resolved it" in incident.title
    story = Story()
    finding, _ = resolved(story)
    story.submit(replace(hold, at=story.now))
    story.after(HOUR_S).submit(NodeCommand(at=story.now, node="n1", word=NodeCommandKind.RELEASE, actor="kim"))
    finding = seen(story.after(QUIET_S), finding)
    assert not story.state.incidents
    seen(story.after(1), finding)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert "after kim released it" in incident.title


def test_where_a_plan_ended_nobody_spoke_and_it_is_not_told_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("playbook: 1\nrules:\n  - {name: tell, why: w, steps: [alert]}\n")
    story = Story(settings(policy=load_policy([path])))
    finding = story.finding("fan/x", Severity.FATAL)
    for _ in range(5):
        finding = seen(story.after(HOUR_S), finding)
    assert len(story.incidents) == 1
    assert len(story.actions) == 1


def test_who_resolves_it_once_more_has_a_quiet_time_once_more() -> None:
    story = Story(settings(mode=Mode.RECOMMEND))
    finding, first = resolved(story)
    finding = seen(story.after(HOUR_S), finding)
    second = resolve(story)
    assert second.id != first.id
    finding = seen(story.after(QUIET_S), finding)
    assert not story.state.incidents
    seen(story.after(1), finding)
    third = story.state.incident_of("n1")
    assert third is not None
    assert second.id in third.title


def test_it_joins_what_is_open_and_is_decided_upon_there() -> None:
    story = Story()
    finding, first = resolved(story)
    story.finding("throttle/thermal", Severity.WARNING)
    seen(story.after(HOUR_S), finding)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert finding.id in incident.findings
    assert first.id in incident.title
    assert story.state.held == {"n1"}


def test_an_incident_opened_again_forgets_whose_word_closed_it() -> None:
    story = Story(settings(mode=Mode.RECOMMEND))
    finding, before = resolved(story)
    closed = story.incidents[before.id]
    assert (closed.state, closed.ended_by) == (IncidentState.CLOSED, "ann resolved it")
    story.submit(IncidentReopened(at=story.now, incident=closed, findings=(finding,), actor="kim"))
    assert story.state.incidents[before.id].ended_by == ""
    assert not story.state.settled


@pytest.mark.parametrize("again_after_s", [0.0, 60.0])
def test_how_long_a_word_counts_is_the_operators_to_say(again_after_s: float) -> None:
    story = Story(settings(again_after_s=again_after_s))
    finding, _ = resolved(story)
    finding = seen(story.after(again_after_s), finding)
    assert not story.state.held
    seen(story.after(1), finding)
    assert story.state.held == {"n1"}


def test_a_word_said_by_a_clock_that_was_ahead_binds_no_longer_than_one_of_now() -> None:
    story = Story()
    finding, _ = resolved(story)
    reopen_rules.restart_settlements(story.state, "n1", "ann resolved it", story.now + 100 * 86_400.0)
    story.after(1)
    finding = seen(story.after(QUIET_S), finding)
    assert not story.state.held
    seen(story.after(1), finding)
    assert story.state.held == {"n1"}


def test_the_word_survives_a_restart_at_any_point_and_a_replay_comes_to_the_same(database: str) -> None:
    story = Story()
    finding, _ = uncordoned(story)
    finding = seen(story.after(60), finding)
    finding = seen(story.after(2 * HOUR_S), finding)
    assert story.state.held == {"n1"}
    journal = Journal(database)
    epoch, state = journal.lead(), ClusterState()
    decisions = []
    for item in story.inputs:
        holds, topology = state.holds, state.topology
        state = journal.load()
        state.topology = topology
        for hold in holds.values():
            state.put_hold(hold)  # the scheduler is asked anew
        apply_input(state, item, story.rules)
        changes = state.take_changes()
        decisions += changes.decisions.values()
        journal.commit([item], changes, epoch)
    journal.close()
    told = msgspec.json.encode(list(story.decisions.values()))
    assert msgspec.json.encode(decisions) == told
    assert msgspec.json.encode(replay_decisions(story.inputs, story.rules)) == told


@given(st.floats(-1e5, 1e5), st.integers(0, 3), st.floats(0, 1e5), st.floats(0, 1e5), st.sampled_from(list(Severity)))
@tries(max_examples=200, deadline=None)
def test_only_what_is_seen_anew_after_the_quiet_time_is_again(
    seen_s: float, times: int, after_s: float, now_s: float, severity: Severity
) -> None:
    story = Story(nodes=1)
    before = story.finding("fan/x", severity, seen_at=START)
    finding = replace(before, count=before.count + times, last_seen=START + seen_s)
    word = Settlement("inc-0", "ann resolved it", START)
    now = START + now_s
    said = reopen_rules.reopening_delay_text(story.state, word, before, finding, now, after_s)
    late = min(finding.last_seen, now) > START + after_s
    assert bool(said) is (times > 0 and late and severity in (Severity.FATAL, Severity.INFO))
