"""Killed between any two inputs, and between any input and its commit: the story ends the same, and nothing happens twice.

The whole graceful story is recorded once. Then, for every prefix, a first controller commits that much and dies; a second one
loads the database and is told the rest, the last input before the crash once more (its acknowledgement was lost).
"""

from __future__ import annotations

import pytest

from remediator.model.pipeline_inputs import AnyInput
from remediator.pipeline import apply_input
from remediator.state.cluster_state import ClusterState
from remediator.store.journal import Journal
from tests.timelines.timeline import Story
from vocabulary.finding import Severity
from vocabulary.order import OrderKind


def whole_story() -> Story:
    story = Story()
    story.job("j1", "n1", "n2")
    finding = story.finding("row_remap/pending", Severity.ERROR)
    story.after(1).scheduler_answers("cordon")
    story.after(1).orders_end(OrderKind.CHECKPOINT_THEN_EJECT.value)
    story.no_job("n1", "n2")
    story.after(1).hold(drained=True)
    story.after(1).orders_end("reset_gpu")
    story.after(1).clear(finding)
    story.after(1).orders_end("run_preflight")
    story.after(1).scheduler_answers("resume")
    story.after(1)
    return story


TOLD = whole_story()


def run(journal: Journal, state: ClusterState, items: list[AnyInput], epoch: int) -> None:
    for item in items:
        apply_input(state, item, TOLD.rules)
        journal.commit([item], state.take_changes(), epoch)


@pytest.mark.parametrize("survived", range(1, len(TOLD.inputs)))
def test_a_second_centre_finishes_what_the_first_began(database: str, survived: int) -> None:
    first = Journal(database)
    epoch = first.lead()
    run(first, first.load(), TOLD.inputs[:survived], epoch)
    first.close()

    second = Journal(database)
    epoch, state = second.lead(), second.load()
    run(second, state, TOLD.inputs[survived - 1 :], epoch)

    assert {n.node: n.state for n in state.nodes.values()} == {n.node: n.state for n in TOLD.state.nodes.values()}
    (incident_id,) = TOLD.incidents
    found = second.incident(incident_id)
    assert found is not None
    incident, _, decisions, actions = found
    assert incident.outcome == "returned to service"
    assert [d.id for d in decisions] == list(TOLD.decisions)
    assert {a.id: a.state for a in actions} == {a.id: a.state for a in TOLD.actions.values()}
    second.close()
