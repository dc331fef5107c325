"""What we gave up on ends after all, and another process hears of it: it is written down, and nothing follows from it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remediator.model.journal_records import Action, ActionState, AuditEvent
from remediator.model.pipeline_inputs import ActionEnded, AnyInput, ManualCordon, ManualCordonKind, OrderAnswered, Tick
from remediator.model.scheduler_hold import ActionOutcome, ActionResult, HoldOwner
from remediator.overrides.manual_cordon import CORDON, UNCORDON
from remediator.pipeline import apply_input
from remediator.state.cluster_state import ClusterState
from remediator.state.unanswered_actions import REMEMBERED_S
from remediator.store.journal import Journal
from tests.timelines.timeline import Story
from vocabulary.finding import Severity
from vocabulary.order import OrderState, OrderUpdate


class Successor:
    """A process that has the journal of a story, and nothing else of it."""

    def __init__(self, story: Story, database: str) -> None:
        self.rules, self.now = story.rules, story.now
        self.journal = Journal(database)
        self.epoch, state = self.journal.lead(), ClusterState()
        for item in story.inputs:
            apply_input(state, item, self.rules)
            self.journal.commit([item], state.take_changes(), self.epoch)
        self.state = self.journal.load()

    def submit(self, item: AnyInput) -> list[AuditEvent]:
        """What is written down of a late end when this is told."""
        apply_input(self.state, item, self.rules)
        changes = self.state.take_changes()
        self.journal.commit([item], changes, self.epoch)
        return [event for event in changes.audit if event.kind == "action_ended_late"]


@pytest.fixture
def withdrawn() -> tuple[Story, Action]:
    """A reset of n1 was ordered, and withdrawn when a person uncordoned the node; its node may be at it."""
    story = Story()
    story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True, owner=HoldOwner.US)
    (order,) = story.open_actions("reset_gpu")
    story.submit(ManualCordon(at=story.now, node="n1", word=ManualCordonKind.UNCORDON, actor="ann", text="fixed"))
    return story, order


@pytest.fixture
def successor(database: str, withdrawn: tuple[Story, Action]) -> Iterator[Successor]:
    made = Successor(withdrawn[0], database)
    yield made
    made.journal.close()


def answer(order: Action, at: float, node: str = "n1") -> OrderAnswered:
    update = OrderUpdate(id=order.id, state=OrderState.FAILED, at=at, detail="the driver hangs")
    return OrderAnswered(at=at, node=node, update=update)


def test_how_an_order_ended_is_written_down_after_a_restart_too(
    successor: Successor, withdrawn: tuple[Story, Action]
) -> None:
    _, order = withdrawn
    nodes = dict(successor.state.nodes)
    assert not successor.submit(answer(order, successor.now, node="n2")), "another node's word"
    (late,) = successor.submit(answer(order, successor.now))
    assert (late.actor, late.data["action"]) == ("n1", order.id)
    assert late.text.endswith("failed: the driver hangs")
    assert not successor.submit(answer(order, successor.now)), "once"
    assert successor.state.nodes == nodes, "nothing follows from it"
    found = successor.journal.incident(order.incident)
    assert found is not None
    assert {a.id: a.state for a in found[3]}[order.id] is ActionState.CANCELLED


def test_after_its_incident_is_closed_too(database: str, withdrawn: tuple[Story, Action]) -> None:
    story, order = withdrawn
    story.scheduler_answers(UNCORDON)
    assert not story.state.incidents
    successor = Successor(story, database)
    assert len(successor.submit(answer(order, successor.now))) == 1
    successor.journal.close()


def test_what_was_asked_by_hand_and_overtaken_is_heard_of_after_a_restart(database: str) -> None:
    story = Story()
    for word in (ManualCordonKind.CORDON, ManualCordonKind.UNCORDON):
        story.submit(ManualCordon(at=story.now, node="n1", word=word, actor="ann", text="fan"))
    (action,) = [a for a in story.actions.values() if a.verb == CORDON]
    successor = Successor(story, database)
    end = ActionEnded(at=story.now, action=action.id, outcome=ActionOutcome(ActionResult.DONE, "held"))
    (late,) = successor.submit(end)
    assert late.data["action"] == action.id
    assert not successor.submit(end)
    assert not successor.state.nodes["n1"].held
    successor.journal.close()


def test_a_day_later_nobody_waits_for_it_any_more(successor: Successor, withdrawn: tuple[Story, Action]) -> None:
    _, order = withdrawn
    then = successor.now + REMEMBERED_S + 1
    successor.submit(Tick(at=then))
    assert not successor.submit(answer(order, then))
