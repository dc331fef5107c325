"""A grave finding that a closed incident has settled is still asserted: its node is no spare, and on no trial that ends."""

from __future__ import annotations

import pytest

from remediator.model.journal_records import IncidentState
from remediator.model.pipeline_inputs import (
    FindingsReported,
    IncidentCommand,
    IncidentCommandKind,
    NodeCommand,
    NodeCommandKind,
)
from remediator.model.plan_steps import Mode
from remediator.model.scheduler_hold import HoldOwner
from remediator.overrides import operator_hold
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Severity

DAY_S = 86_400.0


def say(story: Story, word: NodeCommandKind) -> None:
    story.submit(NodeCommand(at=story.now, node="n1", word=word, actor="ann", text="a new board"))


def resolve(story: Story) -> None:
    incident = story.state.incident_of("n1")
    assert incident is not None
    said = IncidentCommand(at=story.now, incident=incident.id, word=IncidentCommandKind.RESOLVE, actor="ann", node="n1")
    story.submit(said)


def test_a_node_taken_back_from_retirement_answers_for_what_it_still_asserts() -> None:
    story = Story()
    finding = story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon")
    say(story, NodeCommandKind.RETIRE)
    story.hold(schedulable=True, owner=HoldOwner.NOBODY)
    story.after(5)
    assert not story.state.incidents, "a retired node calls nobody"
    say(story, NodeCommandKind.UNRETIRE)
    assert story.state.settled == {}
    story.after(5)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.findings == (finding.id,)
    assert "n1" not in story.state.index.free


def test_that_it_answers_for_it_again_is_written_down() -> None:
    story = Story()
    finding = story.finding("xid/62", Severity.FATAL)
    say(story, NodeCommandKind.RETIRE)
    story.state.take_changes()
    operator_hold.apply_node_command(
        story.state, NodeCommand(at=story.now, node="n1", word=NodeCommandKind.UNRETIRE, actor="ann")
    )
    assert story.state.take_changes().settled == {finding.id: None}


@pytest.mark.parametrize("mode", [Mode.RECOMMEND, Mode.ACT])
def test_who_resolves_an_incident_that_is_still_asserted_makes_no_spare_of_its_node(mode: Mode) -> None:
    story = Story(settings(mode=mode))
    if mode is Mode.ACT:  # a guard holds it back: two others are out already
        for node in ("n3", "n4"):
            story.finding("xid/79", Severity.FATAL, node=node)
    finding = story.finding("xid/62", Severity.FATAL)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.state is IncidentState.OPEN
    resolve(story)
    assert story.node_state() == "probation"
    story.after(DAY_S)
    assert story.state.incident_of("n1") is None, "whoever closed it knew it was there"
    assert story.node_state() == "probation", "its trial does not end while that is asserted"
    assert "n1" not in story.state.index.free
    story.clear(finding)
    story.after(DAY_S)
    assert story.node_state() == "healthy"
    assert "n1" in story.state.index.free


def test_a_healthy_node_is_no_spare_from_the_moment_it_asserts_something_grave() -> None:
    story = Story(settings(mode=Mode.OBSERVE))
    assert "n1" in story.state.index.free
    finding = story.finding("training/loss_not_finite", Severity.ERROR)
    story.hold(schedulable=True, owner=HoldOwner.NOBODY)
    assert "n1" not in story.state.index.free
    story.submit(FindingsReported(at=story.now, node="n1", boot_id="b", active=()))
    assert "n1" in story.state.index.free
    assert not story.state.findings[finding.id].active
