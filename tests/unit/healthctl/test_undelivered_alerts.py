"""An alert for which no receiver is configured must not read as a success."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from healthctl.pages.incident_page import action_outcome, incident_state_cell, render_incident_page
from healthctl.rendering.blocks import Cell, Tone, render_plain, value_text
from remediator.api.record_views import action_view, incident_view
from remediator.model.delivery import NotificationMessage
from remediator.model.journal_records import FOR_REPLACEMENT, Action, ActionState, Incident, IncidentState
from remediator.model.plan_steps import Step, StepRun, StepState, Verb
from remediator.model.views import IncidentView, MissingOutcome, SettlementView, StepView
from remediator.notifications.action_dispatcher import ActionDispatcher

ALERT = Action(id="a1", incident="i", decision="d", node="n1", verb="alert", planned_at=0.0, deadline=60.0)
ENDED = replace(ALERT, state=ActionState.SUCCEEDED, finished_at=1.0)


def test_an_alert_that_nobody_gets_is_shown_as_that() -> None:
    done = ActionDispatcher({}).do(
        ALERT, NotificationMessage("a1", "alert", "c", "n1", "i", "t", "r", "x", injected=False)
    )
    assert done.untold
    assert action_outcome(action_view(replace(ENDED, untold=done.untold))) == Cell("not delivered", Tone.WARN)


@pytest.mark.parametrize("state", [ActionState.SUCCEEDED, ActionState.FAILED])
def test_every_other_action_keeps_its_word(state: ActionState) -> None:
    detail = "nobody is configured to be told"  # prose decides nothing
    assert value_text(action_outcome(action_view(replace(ENDED, state=state, detail=detail)))) == state.value


def test_a_step_that_told_nobody_or_waits_for_a_part_is_no_success() -> None:
    def run(verb: Verb, *actions: str) -> tuple[StepRun]:
        return (StepRun(Step(verb), StepState.SUCCEEDED, actions=actions),)

    plan = (run(Verb.ALERT, "a1"), run(Verb.REPLACE), run(Verb.CORDON, "a2"))
    incident = Incident(id="i", node="n1", title="t", opened_at=0.0, plan=plan, outcome=FOR_REPLACEMENT)
    waiting = replace(incident, state=IncidentState.WAITING)
    untold = replace(ENDED, untold=True)

    def shown(incident: Incident, *actions: Action) -> list[str]:
        return [value_text(action_outcome(step)) for step in incident_view(incident, actions=actions).steps]

    assert shown(waiting, untold) == ["not delivered", "waiting for a replacement part", "succeeded"]
    assert shown(waiting, ENDED) == ["succeeded", "waiting for a replacement part", "succeeded"]
    assert shown(replace(incident, state=IncidentState.CLOSED), ENDED) == ["succeeded"] * 3
    assert shown(replace(waiting, outcome="automation stops here"), ENDED) == ["succeeded"] * 3


def test_only_what_waits_for_a_part_says_so() -> None:
    incident = Incident(id="i", node="n1", title="t", opened_at=0.0, outcome=FOR_REPLACEMENT)
    found = {state: incident_view(replace(incident, state=state)).waits_for_part for state in IncidentState}
    assert [state for state, waits in found.items() if waits] == [IncidentState.WAITING]
    assert not incident_view(replace(incident, state=IncidentState.WAITING, outcome="x")).waits_for_part


def test_a_list_says_so_beside_the_state() -> None:
    step = StepView("alert", "succeeded", lacks=MissingOutcome.TOLD_NOBODY)
    seen = IncidentView("i", "n1", "closed", "t", 0.0, steps=(step,))
    assert incident_state_cell(seen) == Cell("closed, not delivered", Tone.WARN)
    assert value_text(incident_state_cell(replace(seen, steps=()))) == "closed"


@pytest.mark.parametrize(
    ("until", "says"),
    [(None, "applies until there is a new finding"), (1_700_000_900.0, "after 2023-11-14 22:28:20Z opens a new")],
)
def test_for_how_long_a_word_counts_is_said(until: float | None, says: str) -> None:
    seen = IncidentView("i", "n1", "closed", "t", 0.0, word=SettlementView("ann resolved it", 1_700_000_000.0, until))
    (line,) = [line for line in render_plain(render_incident_page(seen)).splitlines() if line.startswith("operator ")]
    assert "ann resolved it at 2023-11-14 22:13:20Z; " in line
    assert says in line
