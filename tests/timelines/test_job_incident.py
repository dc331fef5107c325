"""A program's error on many nodes of one job is one incident about the job: one matter to people, open until it is over."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from remediator.decisions.isolation_budget import IsolationBudget
from remediator.model.journal_records import Action, Incident, IncidentState, JobRef
from remediator.model.node_location import NodeLocation
from remediator.model.pipeline_inputs import (
    IncidentCommand,
    IncidentCommandKind,
    IncidentReopened,
    ModeSet,
    PlacementChanged,
    TopologyObserved,
)
from remediator.model.plan_steps import Mode
from remediator.playbook.playbook_loader import load_policy
from remediator.state.cluster_state import ClusterState
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Finding, Severity

NODES = tuple(f"n{n}" for n in range(1, 17))
GONE_S = 900.0


def story(mode: Mode = Mode.ACT) -> Story:
    found = Story(settings(mode=mode), nodes=20)
    found.submit(
        TopologyObserved(
            at=found.now, source="backend", places={f"n{n}": NodeLocation(partitions=("gpu",)) for n in range(1, 21)}
        )
    )
    for node in NODES:
        found.submit(PlacementChanged(at=found.now, node=node, jobs=(JobRef("train", 1),), worlds=(128,)))
    return found


def fail(found: Story, *nodes: str, severity: Severity = Severity.WARNING, every_s: float = 0.1) -> list[Finding]:
    """Each node says that the program met a bad address, and what came of it."""
    raised = []
    for node in nodes:
        found.now += every_s
        raised += [found.finding(kind, severity, node=node) for kind in ("xid/31", "xid/13")]
    found.after(0)
    return raised


def about(found: Story) -> list[str]:
    return [incident.node for incident in found.state.incidents.values()]


def the_job(found: Story) -> Incident:
    (incident,) = found.state.incidents.values()
    assert incident.node == "job:train"
    return incident


def alerts(found: Story) -> list[Action]:
    return sorted((a for a in found.actions.values() if a.verb == "alert"), key=lambda a: a.planned_at)


@pytest.mark.parametrize("severity", [Severity.INFO, Severity.WARNING, Severity.ERROR])
def test_sixteen_nodes_of_one_job_are_one_incident_about_the_job(severity: Severity) -> None:
    found = story()
    fail(found, *NODES, severity=severity)

    incident = the_job(found)
    assert incident.title == "Job train fails with Xid 13 and Xid 31 on all 16 of its nodes (128 ranks, partition gpu)"
    assert incident.members == tuple(sorted(NODES))
    assert not found.state.held
    assert all(node.state.value == "healthy" for node in found.state.nodes.values())


def test_it_is_open_for_as_long_as_the_nodes_assert_it_and_told_once_and_as_it_doubles() -> None:
    found = story()
    fail(found, *NODES)
    found.after(1)
    assert len(alerts(found)) == 1, "the first message; the rest of the burst waits for its turn"
    found.after(60)

    assert the_job(found).state is IncidentState.WAITING
    first, then = alerts(found)
    assert "on 2 of its 16 nodes" in str(first.data["how"])
    assert "on all 16 of its nodes" in str(then.data["how"])
    assert "Look at the program" in str(then.data["how"])
    assert (first.data.get("update"), then.data.get("update")) == (None, True)
    found.after(3600)
    assert len(alerts(found)) == 2
    assert the_job(found)


def test_it_ends_when_the_last_finding_has_cleared() -> None:
    found = story()
    raised = fail(found, *NODES)
    for finding in raised[:-1]:
        found.clear(finding)
    found.after(1)
    assert the_job(found)
    found.clear(raised[-1])
    found.after(1)
    assert not about(found)
    (over,) = [i for i in found.incidents.values() if i.wide]
    assert over.outcome == "its findings have cleared"


def test_what_is_only_seen_ends_when_it_was_quiet_for_a_quarter_of_an_hour() -> None:
    found = story()
    fail(found, *NODES, severity=Severity.INFO)
    found.after(800)
    fail(found, "n3", severity=Severity.INFO)
    found.after(800)
    assert the_job(found)
    found.after(200)
    assert not about(found)


def test_it_ends_with_the_job_but_not_while_the_job_starts_again() -> None:
    found = story()
    fail(found, *NODES)
    found.no_job(*NODES)
    found.after(600)
    assert the_job(found), "a job that starts again is the same job"
    found.job("train", *NODES, attempt=2)
    found.after(3600)
    assert the_job(found).job_gone_at is None
    found.no_job(*NODES)
    found.after(1)
    found.after(GONE_S)
    assert not about(found), "what its nodes still assert opens nothing anew"
    (over,) = [i for i in found.incidents.values() if i.wide]
    assert over.outcome == "the job has ended"


def test_lines_that_repeat_open_and_tell_nothing_more() -> None:
    found = story()
    fail(found, *NODES, severity=Severity.INFO)
    found.after(60)
    told = len(alerts(found))
    for _ in range(20):
        fail(found, *NODES[:4], severity=Severity.INFO)
    found.after(60)
    the_job(found)
    assert len(found.incidents) == 1, "no incident of a node, not even a closed one"
    assert len(alerts(found)) == told


def test_the_node_that_was_first_folds_into_it() -> None:
    found = story()
    fail(found, "n1")
    assert about(found) == ["n1"], "one node alone is no job's fault yet"
    fail(found, "n2")
    incident = the_job(found)
    assert incident.members == ("n1", "n2")
    (first,) = [i for i in found.incidents.values() if not i.wide]
    assert first.outcome == f"now part of {incident.id}, job:train"


def test_a_node_with_a_fault_of_its_own_keeps_its_incident_and_leaves() -> None:
    found = story()
    found.finding("xid/79", Severity.FATAL, node="n1")
    fail(found, *NODES)
    found.finding("xid/79", Severity.FATAL, node="n2")
    assert sorted(about(found)) == ["job:train", "n1", "n2"]
    assert sorted(found.state.held) == ["n1", "n2"], "a program's error protects no broken GPU"


def test_two_jobs_are_two_incidents() -> None:
    found = story()
    found.job("other", "n17", "n18")
    fail(found, "n1", "n2", "n17", "n18")
    assert sorted(about(found)) == ["job:other", "job:train"]


def test_three_lost_gpus_of_the_same_job_make_it_a_common_cause_of_the_same_incident() -> None:
    found = story()
    found.rules = replace(found.rules, budget=IsolationBudget())
    fail(found, "n1", "n2", "n3")
    before = the_job(found).id
    for node in ("n4", "n5", "n6"):
        found.finding("xid/79", Severity.FATAL, node=node)
    (incident,) = found.state.wide()
    assert (incident.id, incident.rule) == (before, "common-cause")
    assert set(incident.members) >= {"n4", "n5", "n6"}
    found.finding("xid/31", Severity.WARNING, node="n9")
    (with_more,) = found.state.wide()
    assert with_more.members == incident.members, "n9 keeps its place"
    found.no_job(*NODES)
    found.after(1)
    found.after(GONE_S)
    (still,) = found.state.wide()
    assert (still.id, still.title) == (before, incident.title), "its nodes have lost their GPUs with or without the job"


def test_a_restart_forgets_nothing_of_it() -> None:
    found = story()
    fail(found, *NODES[:8])
    was = found.state
    found.state = ClusterState.restored(
        was.nodes.values(),
        was.findings.values(),
        was.incidents.values(),
        was.actions.values(),
        found.occurrences,
        was.settled.items(),
    )
    fail(found, *NODES[8:])
    assert len(the_job(found).members) == 16
    found.after(60)
    assert len(alerts(found)) == 2


def test_who_only_looks_on_tells_nobody_until_the_mode_is_raised() -> None:
    found = story()
    found.submit(ModeSet(at=found.now, actor="ann", mode=Mode.OBSERVE))
    fail(found, *NODES)
    found.after(60)
    assert the_job(found)
    assert not alerts(found)
    found.submit(ModeSet(at=found.now, actor="ann", mode=Mode.ACT))
    found.after(60)
    assert len(alerts(found)) == 1


def test_a_persons_word_ends_it_and_counts_for_a_while() -> None:
    found = story()
    fail(found, *NODES[:8])
    incident = the_job(found)
    said = IncidentCommand(
        at=found.now, node=incident.node, incident=incident.id, word=IncidentCommandKind.RESOLVE, actor="ann"
    )
    found.submit(said)
    assert not about(found)
    fail(found, *NODES[8:])
    found.after(60)
    assert not about(found), "the person knew that the job fails"
    found.after(900)
    fail(found, "n1", "n2")
    the_job(found)


def test_a_drill_is_no_real_fault_and_a_real_fault_no_drill() -> None:
    found = story()
    for node in ("n1", "n2"):
        found.finding("xid/31", Severity.WARNING, node=node, injected=True)
    drill = the_job(found)
    assert drill.injected
    fail(found, "n3", "n4")
    (real,) = [i for i in found.state.wide() if not i.injected]
    assert real.members == ("n3", "n4")
    assert found.incidents[drill.id].outcome == "new failures there are not drills"


def test_more_findings_than_it_lists_keep_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remediator.decisions.job_faults.FINDINGS_MAX", 4)
    found = story()
    raised = fail(found, *NODES)
    assert len(the_job(found).findings) == 4
    assert len(the_job(found).members) == 16
    for finding in raised[:-1]:
        found.clear(finding)
    found.after(1)
    assert the_job(found)
    found.clear(raised[-1])
    found.after(1)
    assert not about(found)


def test_that_a_programs_error_is_over_does_not_forget_who_lost_a_gpu() -> None:
    found = story()
    found.rules = replace(found.rules, budget=IsolationBudget())
    raised = fail(found, "n1", "n2")
    for node in ("n4", "n5"):
        found.finding("xid/79", Severity.FATAL, node=node)
    for finding in raised:
        found.clear(finding)
    found.after(1)
    assert not [i for i in found.state.wide() if i.node == "job:train"]
    found.finding("xid/79", Severity.FATAL, node="n6")
    assert [(i.node, i.rule) for i in found.state.wide()] == [("job:train", "common-cause")]


def test_what_else_a_node_shows_stays_in_sight_beside_it() -> None:
    found = story()
    noise = found.finding("nvlink/errors", Severity.WARNING, node="n1")
    before = found.state.incident_of("n1")
    raised = fail(found, "n1", "n2")
    assert before is not None
    assert sorted(found.state.incidents) == sorted([before.id, *(i.id for i in found.state.wide())])
    for finding in raised:
        found.clear(finding)
    found.after(1)
    assert about(found) == ["n1"]
    found.clear(noise)
    found.after(1)
    assert not about(found)


def test_what_was_only_seen_long_ago_is_no_part_of_it() -> None:
    found = story()
    fail(found, "n3", severity=Severity.INFO)
    found.after(700)
    fail(found, "n1", "n2", severity=Severity.INFO)
    assert the_job(found).members == ("n1", "n2")
    assert [(o.incident, o.node) for o in found.occurrences if o.kind == "rule/job-at-fault"] == [
        (the_job(found).id, "n2")
    ]


def test_of_two_jobs_on_a_node_the_finding_says_which_else_the_one_on_more_such_nodes() -> None:
    found = story()
    both = (JobRef("another", 1), JobRef("train", 1))
    for node in ("n1", "n2"):
        found.submit(PlacementChanged(at=found.now, node=node, jobs=both, worlds=(8, 128)))
    fail(found, "n3", "n4", "n1")
    assert sorted(about(found)) == ["job:train"]
    for node in ("n1", "n2"):
        found.finding("xid/45", Severity.WARNING, node=node, evidence={"job": "another"})
        found.finding("xid/39", Severity.WARNING, node=node, evidence={"job": "another"})
    assert "job:another" in about(found)
    (other,) = [i for i in found.state.wide() if i.node == "job:another"]
    assert {found.state.findings[each].code for each in other.findings} == {"39"}


def test_the_ranks_are_those_of_the_newest_attempt() -> None:
    found = story()
    for node in NODES[8:]:
        found.submit(PlacementChanged(at=found.now, node=node, jobs=(JobRef("train", 2),), worlds=(64,)))
    fail(found, *NODES)
    assert "(64 ranks, partition gpu)" in the_job(found).title


def test_an_incident_about_which_something_was_done_or_that_a_person_opened_again_is_no_part_of_it() -> None:
    found = story()
    lost = found.finding("xid/79", Severity.FATAL, node="n1")
    found.clear(lost)
    fail(found, "n3")
    own = found.state.incident_of("n3")
    assert own is not None
    found.submit(
        IncidentCommand(at=found.now, node="n3", incident=own.id, word=IncidentCommandKind.RESOLVE, actor="ann")
    )
    closed = found.incidents[own.id]
    known = tuple(found.state.findings[each] for each in closed.findings)
    found.submit(IncidentReopened(at=found.now, incident=closed, findings=known, actor="ann"))
    fail(found, "n1", "n2")
    assert sorted(about(found)) == ["job:train", "n1", "n3"]
    (job,) = found.state.wide()
    assert set(job.members) >= {"n1", "n2"}


def test_an_incident_for_which_the_trainer_was_told_to_save_is_no_part_of_it(tmp_path: Path) -> None:
    found = story()
    save = "  - {name: save, why: x, match: {findings: [xid/92]}, steps: [{notify_trainer: save_and_relaunch}]}\n"
    found.rules = replace(found.rules, policy=load_policy([policy_file(tmp_path, save)]))
    found.clear(found.finding("xid/92", Severity.WARNING, node="n1"))
    for node in ("n1", "n2"):
        found.finding("xid/31", Severity.WARNING, node=node)
    assert sorted(about(found)) == ["job:train", "n1"]


def policy_file(tmp_path: Path, more: str = "") -> Path:
    """A rule about a job's program, with a ticket, and `more` rules."""
    path = tmp_path / "policy.yaml"
    match = "{findings: [xid/31], job: running, history: [{scope: job, distinct: nodes, at_least: 2, within_s: 600}]}"
    rule = f"  - {{name: programs, why: x, incident: job, match: {match}, steps: [{{alert: x}}, {{ticket: the program}}]}}\n"
    path.write_text(f"playbook: 1\nrules:\n{rule}{more}")
    return path


def test_its_ticket_is_written_once(tmp_path: Path) -> None:
    found = story()
    found.rules = replace(found.rules, policy=load_policy([policy_file(tmp_path)]))
    for node in NODES:
        found.finding("xid/31", Severity.WARNING, node=node)
    found.after(60)
    assert len(alerts(found)) == 2
    (ticket,) = [each for each in found.actions.values() if each.verb == "ticket"]
    assert (ticket.incident, ticket.data["how"]) == (the_job(found).id, "the program")
