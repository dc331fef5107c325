"""What waits for the same word stands as one row, and nothing that differs hides in it."""

from __future__ import annotations

from remediator.model.views_actions import AwaitingView
from remediator.web.approval_grouping import group_approvals
from remediator.web.incident_grouping import ALIKE_MIN


def asked(number: int, text: str = "the plan of gpu-lost", steps: str = "drain") -> AwaitingView:
    return AwaitingView(f"i{number}", f"n{number}", f"i{number}.d1", text, 10.0 + number, "a fault", ((steps,),))


def test_those_that_wait_for_the_same_are_one_row_led_by_the_one_that_waits_longest() -> None:
    (row,) = group_approvals([asked(n) for n in range(40)], {}, {})
    assert (row.first.node, len(row.awaiting)) == ("n0", 40)


def test_another_plan_or_other_steps_stand_apart_and_two_are_not_many() -> None:
    waiting = [asked(n) for n in range(ALIKE_MIN)] + [
        asked(20, "the plan of other"),
        asked(21, steps="reset_gpu"),
        asked(22, "x"),
    ]
    assert [len(row.awaiting) for row in group_approvals(waiting, {}, {})] == [ALIKE_MIN, 1, 1, 1]
    assert [len(row.awaiting) for row in group_approvals(waiting[: ALIKE_MIN - 1], {}, {})] == [1] * (ALIKE_MIN - 1)
