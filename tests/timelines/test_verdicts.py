"""What the controller concluded goes through the ordinary pipeline, is nobody else's to take back, and replays the same."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.model.detector_origin import CENTRE
from remediator.model.pipeline_inputs import FindingsReported, VerdictsReached
from remediator.replay.journal_replay import replay_decisions
from tests.timelines.timeline import SHIPPED, Story, settings
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.identity import Component, ComponentKind

HOST = Component(ComponentKind.HOST)


def slow(now: float, node: str = "n1", severity: Severity = Severity.WARNING, kind: str = "straggler/node") -> Finding:
    check, code = kind.split("/")
    origin = f"{CENTRE}{check}:train.1"
    return Finding(
        id=finding_id(node, check, code, HOST, origin), node=node, check=check, code=code, component=HOST,
        severity=severity, summary="slow", first_seen=now, last_seen=now, origin=origin, level=True,
        evidence={"job": "train", "attempt": 1, "level": "now", "confirmed": "unknown"},
    )  # fmt: skip


def conclude(story: Story, *findings: Finding) -> None:
    story.submit(VerdictsReached(at=story.now, findings=findings))


def rules(story: Story) -> list[str]:
    return [decision.rule for decision in story.decisions.values()]


def test_a_suspicion_is_an_incident_with_a_decision_and_the_nodes_own_reports_do_not_end_it() -> None:
    story = Story()
    story.job("train", "n1", "n2")
    found = slow(story.now)
    conclude(story, found)
    assert rules(story) == ["straggler-suspected"]
    for changes in ((), (found.cleared(story.now, "never mind"),), (replace(found, severity=Severity.INFO),)):
        story.submit(FindingsReported(at=story.now, node="n1", boot_id="b", changes=changes, active=()))
        assert story.state.findings[found.id] == found
    assert story.kinds().count("finding_refused") == 2
    story.submit(FindingsReported(at=story.now, node="n2", boot_id="b", changes=(slow(story.now, "n2"),)))
    assert [f.node for f in story.state.findings.values()] == ["n1"]
    assert story.node_state() != "draining"


def test_what_is_said_twice_by_two_leaders_is_one_incident_and_a_return_of_it_another() -> None:
    story = Story()
    story.job("train", "n1", "n2")
    conclude(story, slow(story.now))
    story.after(60)
    conclude(story, slow(story.now))
    assert len(story.incidents) == 1
    conclude(story, slow(story.now).cleared(story.now, "no longer slow"))
    story.after(1200)
    assert not story.state.incidents
    conclude(story, slow(story.now))
    assert len(story.state.incidents) == 1
    assert len(story.incidents) == 2


def test_a_confirmed_straggler_leaves_and_its_passed_test_disproves_what_was_said() -> None:
    story = Story()
    story.job("train", "n1", "n2")
    conclude(story, slow(story.now, severity=Severity.ERROR))
    assert "straggler-confirmed" in rules(story)
    story.scheduler_answers("cordon")
    story.orders_end("checkpoint_then_eject")
    story.no_job("n1", "n2")
    story.hold(drained=True)
    story.orders_end("run_preflight")
    assert not story.state.active_on("n1")
    story.scheduler_answers("resume")
    assert story.node_state() == "probation"


def test_a_lemon_is_not_disproved_by_a_test_and_nothing_is_said_of_a_node_nobody_knows() -> None:
    story = Story()
    conclude(story, slow(story.now, kind="lemon/confirmed", severity=Severity.ERROR), slow(story.now, node="n9"))
    story.scheduler_answers("cordon")
    story.hold(drained=True)
    story.orders_end("run_preflight")
    assert [f.kind for f in story.state.active_on("n1")] == ["lemon/confirmed"]
    assert "n9" not in story.state.nodes


def test_the_record_replays_to_the_same_decisions() -> None:
    story = Story()
    story.job("train", "n1", "n2")
    conclude(story, slow(story.now))
    story.after(700)
    conclude(story, replace(slow(story.now), severity=Severity.ERROR))
    story.after(5)
    again = replay_decisions(story.inputs, settings(policy=SHIPPED))
    assert [d.id for d in again] == [*story.decisions]
    assert {d.rule for d in again} == {"straggler-suspected", "straggler-confirmed"}
