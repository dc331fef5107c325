"""Actions that say the same stand as one row, and none is lost or hidden by it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remediator.model.views import ActionView, IncidentView, MissingOutcome, StepView
from remediator.web.action_grouping import ALIKE_MIN, ActionGroup, group_actions
from remediator.web.incident_progress import incident_progress_text
from remediator.web.incident_rows import WORDS_MAX, first_refused_guard


def abort(number: int, took: float | None = 3.0, **more: object) -> ActionView:
    node = f"n{number}"
    ended = {} if took is None else {"finished_at": 10.0 + number + took}
    fields = {"id": f"a{number}", "verb": "abort", "node": node, "state": "succeeded", "deadline": 100.0 + number}
    return ActionView(**(fields | {"planned_at": 10.0 + number, "detail": f"{node} left"} | ended | more))  # type: ignore[arg-type]  # fields


def test_a_hundred_aborts_are_one_row_that_says_how_long_they_took() -> None:
    (row,) = group_actions([abort(n, took=1.0 + n) for n in range(100)])
    assert (row.nodes, row.planned_at, row.finished_at, row.took) == (100, 10.0, 209.0, (1.0, 100.0))


def test_a_row_has_not_ended_before_its_last_action() -> None:
    (row,) = group_actions([abort(n, took=None, state="planned") for n in range(ALIKE_MIN)])
    assert (row.finished_at, row.deadline) == (None, 102.0)


def test_the_one_that_failed_stands_apart() -> None:
    apart = [
        {"state": "failed"},
        {"detail": "it hangs"},
        {"verb": "cordon"},
        {"lacks": MissingOutcome.TOLD_NOBODY},
        {"incident": "i"},
    ]
    apart += [{"attempts": 2}, {"why": "ann"}]
    actions = [abort(n) for n in range(ALIKE_MIN)] + [abort(50 + n, **more) for n, more in enumerate(apart)]
    assert [len(row.actions) for row in group_actions(actions)] == [ALIKE_MIN, *[1] * len(apart)]


@given(st.lists(st.sampled_from(["abort", "cordon", "drain"]), max_size=20))
def test_every_action_is_in_one_row_and_the_first_of_each_keeps_its_place(verbs: list[str]) -> None:
    actions = [abort(n, verb=verb) for n, verb in enumerate(verbs)]
    rows = group_actions(actions)
    assert sorted(a.id for row in rows for a in row.actions) == sorted(a.id for a in actions)
    order = [actions.index(row.first) for row in rows]
    assert order == sorted(order)
    assert all(len(row.actions) == 1 or len(row.actions) >= ALIKE_MIN for row in rows)
    assert ActionGroup((replace(abort(1), attempts=4), abort(2))).attempts == 4


@given(st.text(max_size=400))
def test_a_guard_is_named_in_one_line(words: str) -> None:
    said = first_refused_guard(("passed level: fine", f"refused rack: {words}"))
    assert said.startswith("rack:")
    assert len(said) <= WORDS_MAX + 2
    assert first_refused_guard(("passed level: fine",)) == ""


def test_an_alert_without_a_receiver_is_no_line_in_the_list_of_incidents() -> None:
    steps = (StepView("alert: a fan", "succeeded", lacks=MissingOutcome.TOLD_NOBODY), StepView("drain", "running"))
    incident = IncidentView("i", "n", "acting", "t", 1.0, steps=steps)
    assert incident_progress_text(incident) == "step 2 of 2, running: drain"
