"""An alert for which no receiver is configured must not read as a success."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from healthctl.incident_page import TOLD_NOBODY, outcome, step_outcome
from healthctl.output import Cell, Tone, text_of
from remediator.act.deeds import Deeds
from remediator.model.delivery import Message
from remediator.model.records import Action
from remediator.model.views import ActionView, IncidentView, StepView


def shown(detail: str, state: str = "succeeded") -> Cell:
    cell = outcome(ActionView("a1", "alert", "n1", state, 0.0, 60.0, detail=detail))
    assert isinstance(cell, Cell)
    return cell


def test_an_alert_that_nobody_gets_is_shown_as_that() -> None:
    action = Action(id="a1", incident="i", decision="d", node="n1", verb="alert", planned_at=0.0, deadline=60.0)
    done = Deeds({}).do(action, Message("a1", "alert", "c", "n1", "i", "t", "r", "x", injected=False))
    assert shown(done.detail) == Cell("told nobody", Tone.WARN)


@pytest.mark.parametrize(
    ("detail", "state"), [("on its way to pager", "succeeded"), ("nobody is configured", "failed")]
)
def test_every_other_action_keeps_its_word(detail: str, state: str) -> None:
    assert shown(detail, state).text == state


def test_a_step_that_told_nobody_or_waits_for_a_part_is_no_success() -> None:
    alert = ActionView("a1", "alert", "n1", "succeeded", 0.0, 60.0, detail=f"{TOLD_NOBODY}: it is in the log")
    steps = (StepView("alert: page", "succeeded"), StepView("replace", "succeeded"), StepView("cordon", "succeeded"))
    waiting = IncidentView("i", "n1", "waiting", "t", 0.0, steps=steps, actions=(alert,))
    shown = [text_of(step_outcome(step, waiting)) for step in steps]
    assert shown == ["told nobody", "waits for the part", "succeeded"]
    told = replace(waiting, state="closed", actions=(alert, replace(alert, detail="on its way to pager")))
    assert {text_of(step_outcome(step, told)) for step in steps} == {"succeeded"}
