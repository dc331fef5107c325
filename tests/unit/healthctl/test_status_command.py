"""What `healthctl status` calls well, what it tells, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from healthctl.pages.incident_page import action_outcome
from healthctl.pages.status_page import is_well, render_status_page
from healthctl.rendering.blocks import format_timestamp, render_plain, state_cell
from remediator.model.journal_records import OperatorHold
from remediator.model.views import ActionView, DecisionView, NodeView, PendingApproval, StatusView, StepView
from remediator.model.views_actions import AwaitingView
from remediator.model.views_overview import IncidentSummary, NamedNodes, OverviewView, ReportFreshness, SilencedView
from tests.unit.healthctl.conftest import AT, STATUS
from tests.unit.healthctl.stub_controller import SmallCentre

WELL = replace(
    STATUS,
    nodes_by_state={"healthy": 1, "retired": 1},
    nodes_by_health={"healthy": 1, "unknown": 1},
    incidents_open=0,
    blocked=(),
    mode_by="",
    breaker="",
)


def look(*told: IncidentSummary, status: StatusView = WELL, **more: Any) -> OverviewView:
    """An answer that tells these incidents."""
    opened = replace(status, incidents_open=max(status.incidents_open, len(told)))
    return OverviewView(**asdict(opened), incidents=told, **more)


@pytest.mark.parametrize(
    ("status", "well"),
    [
        (WELL, True),
        (replace(WELL, mode="recommend", blocked=("mode is recommend: decisions are shown but not executed",)), True),
        (replace(WELL, mode="observe", mode_by="ann", blocked=("mode is observe: …",)), False),
        (replace(WELL, blocked=("the disk is full",)), False),
        (replace(WELL, breaker="open since …"), False),
        (replace(WELL, incidents_open=1), False),
        (replace(WELL, nodes_by_health={"unknown": 2}), False),
        (replace(WELL, nodes_by_health={"unhealthy": 1, "unknown": 1}), False),
    ],
)
def test_well_is_only_what_is_known_to_be(status: StatusView, *, well: bool) -> None:
    assert is_well(status) is well
    assert render_plain(render_status_page(look(status=status))).startswith(f"{status.cluster} is healthy") is well


def incident(number: int, **more: Any) -> IncidentSummary:
    return replace(IncidentSummary(f"inc-{number}", "n", "open", "t", AT + number), **more)


@given(st.integers(0, 40), st.integers(0, 3))
def test_what_is_not_told_is_counted(open_count: int, told: int) -> None:
    found = [incident(number) for number in range(min(told, open_count))]
    text = render_plain(render_status_page(look(*found, status=replace(WELL, incidents_open=open_count))))
    left = open_count - min(told, open_count)
    assert (f"and {left} more open incident" in text) is bool(left)


@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 3))
def test_a_screen_is_not_filled_with_what_blocks_or_waits(count: int, most: int, more: int) -> None:
    waiting = [AwaitingView(f"inc-{n}", "n", f"inc-{n}.d1", "a plan", AT, "t") for n in range(count)]
    blocked = tuple(f"reason {n}" for n in range(count))
    view = look(status=replace(WELL, blocked=blocked), awaiting=tuple(waiting), awaiting_more=more)
    text = render_plain(render_status_page(view, most))
    assert text.count("awaiting you") == text.count("reason ") == min(count, most)
    assert (f"and {count - most} more: healthctl status -o wide" in text) is (count > most)
    left = count + more - most
    assert (f"and {left} more awaiting approval: healthctl actions awaiting" in text) is (left > 0)


def test_what_did_not_come_of_what_stands_still_is_counted() -> None:
    blocked = tuple(f"inc-{n} on n needs a person: a fan" for n in range(1, 9))
    text = render_plain(
        render_status_page(look(incident(1), status=replace(WELL, blocked=blocked), blocked_more=600), 6)
    )
    assert "inc-1 on n" not in text, "it is told below"
    assert "inc-2 on n" in text
    assert "and 601 more: healthctl status -o wide" in text


def deed(verb: str, state: str, at: float) -> ActionView:
    return ActionView(verb, verb, "n", state, at, at, at)


def test_done_now_and_next_are_told_apart() -> None:
    deeds = tuple(deed(f"deed{number}", "succeeded", AT + number) for number in (5, 4, 3))
    view = incident(
        0,
        actions=(deed("late", "failed", AT + 9), *deeds),
        steps=(StepView("drain", "succeeded"), StepView("reset", "running", "30 s"), StepView("preflight", "pending")),
    )
    lines = [line.split(maxsplit=1) for line in render_plain(render_status_page(look(view))).splitlines() if line]
    assert [rest for name, rest in pairs(lines) if name == "now"] == ["reset: running (30 s)"]
    assert [rest for name, rest in pairs(lines) if name == "next"] == ["preflight"]
    done = [rest.partition(" ")[0] for name, rest in pairs(lines) if name == "done"]
    assert done == ["deed3", "deed4", "deed5", "late"], "in the order of their time"


def pairs(lines: list[list[str]]) -> Iterator[tuple[str, str]]:
    yield from ((line[0], line[1]) for line in lines if len(line) == 2)


def test_of_many_deeds_the_first_are_told_and_the_rest_is_counted() -> None:
    """What weighs most stands first in the answer."""
    deeds = tuple(
        deed(verb, "succeeded", AT + n) for n, verb in enumerate(["cordon", "abort", "abort", "abort", "alert"])
    )
    text = render_plain(render_status_page(look(incident(0, actions=deeds, actions_more=7))))
    assert "cordon n: succeeded" in text
    assert "alert n:" not in text
    assert "and 8 more: healthctl incidents show inc-0" in text


def decided(answer: str) -> DecisionView:
    return DecisionView("d", AT, answer, "gpu-lost", "because", "p")


STEPS = (("cordon",), ("ticket", "alert"))
HELD = NodeView("n", "operator-held", "unhealthy", AT, "", AT, hands_off=OperatorHold("ann"))


@pytest.mark.parametrize(
    ("view", "node", "words"),
    [
        (incident(0, decisions=(decided("recommend"),), proposed=STEPS), None, "proposed: 1 cordon, 2 ticket and alert"),
        (incident(0, decisions=(decided("hold"),), proposed=STEPS), None, "when all guards pass; then: 1 cordon"),
        (incident(0, awaits=(PendingApproval("d1", "a plan"),), proposed=STEPS), None, "2 ticket and alert; awaiting approval: healthctl actions approve d1"),
        (incident(0, state="waiting", waits_for_part=True), None, "healthctl nodes uncordon n 'WHAT WAS DONE'"),
        (incident(0, state="waiting", outcome="reset failed"), replace(HELD, hands_off=None), "healthctl incidents resolve inc-0"),
        (incident(0, state="waiting", outcome="reset failed"), replace(HELD, hands_off=None, held_by="us"), "healthctl nodes uncordon n"),
        (incident(0, node="rack:r7", decisions=(decided("hold"),)), None, "healthctl incidents resolve inc-0"),
        (incident(0, node="cluster:breaker"), None, "healthctl breaker reset"),
        (incident(0), HELD, "healthctl nodes release n"),
    ],
)  # fmt: skip
def test_the_next_step_is_said_with_its_command(view: IncidentSummary, node: NodeView | None, words: str) -> None:
    text = render_plain(render_status_page(look(view, nodes=() if node is None else (node,))))
    (line,) = [line for line in text.splitlines() if line.startswith("next ")]
    assert words in line


def test_what_is_stopped_or_waits_for_a_part_is_not_to_be_stopped() -> None:
    waiting = incident(0, state="waiting", waits_for_part=True)
    for view, nodes in ((incident(0), (HELD,)), (waiting, ()), (incident(0, decisions=(decided("observe"),)), ())):
        assert "stop it" not in render_plain(render_status_page(look(view, nodes=nodes)))
    assert "stop it" in render_plain(render_status_page(look(incident(0))))


def test_one_node_that_waits_for_a_part_does_not_keep_automation_from_acting() -> None:
    view = incident(0, state="waiting", waits_for_part=True)
    status = replace(WELL, incidents_open=1, blocked=("inc-0 on n needs a person: waits for replacement",))
    assert "automation limited" not in render_plain(render_status_page(look(view, status=status)))
    assert "inc-0 on n needs a person" in render_plain(render_status_page(look(status=status)))


def test_a_mode_that_a_person_set_is_given_back_to_the_configuration() -> None:
    stopped = replace(WELL, mode="observe", mode_by="ann", blocked=("mode is observe (set by ann)",))
    text = render_plain(render_status_page(look(status=stopped)))
    assert "healthctl mode config" in text
    assert "healthctl mode act" not in text


def test_what_people_hold_or_silenced_and_what_nobody_decided_upon_is_named() -> None:
    many = NamedNodes(12, tuple(f"n{number:02}" for number in range(12)))
    view = look(cordoned=NamedNodes(1, ("a",)), untended=many, silenced=SilencedView(2, AT + 60))
    text = render_plain(render_status_page(view))
    assert "a: by operators; lift: healthctl nodes uncordon NODE" in text
    assert "2 silences, the first ends 2023-11-14 22:14:20Z" in text
    assert "n05 and 6 more: unhealthy without an incident; see" in text
    assert not {"cordoned", "silenced", "no incident"} & {
        line[:11].strip() for line in render_plain(render_status_page(look())).splitlines()
    }


@pytest.mark.parametrize(
    ("heard", "says"),
    [
        (ReportFreshness(), ""),
        (ReportFreshness(3, 3, 0, AT - 8), "all nodes report in time; the oldest report is 8s old"),
        (ReportFreshness(3, 2, 0, AT - 720), "2 of 3 nodes in time; the oldest report is 12m old"),
        (ReportFreshness(3, 1, 2, AT), "1 of 3 nodes in time, 2 not since this controller became leader; the oldest report is 1s old"),
        (ReportFreshness(1, 0, 1), "0 of 1 node in time, 1 not since this controller became leader"),
    ],
)  # fmt: skip
def test_how_old_it_is_what_is_told(heard: ReportFreshness, says: str) -> None:
    lines = dict(
        line.split(maxsplit=1)
        for line in render_plain(render_status_page(look(heard=heard))).splitlines()
        if " " in line
    )
    assert lines.get("reports", "") == says


def test_what_could_not_be_asked_is_said() -> None:
    text = render_plain(render_status_page(look(lacking=("the database does not answer",))))
    assert "incomplete answer:\n  the database does not answer" in text


def test_a_status_is_one_question(
    healthctl: Callable[..., Result], small_centre: SmallCentre, token_file: Path
) -> None:
    small_centre.answers["/v1/overview"] = look(incident(0), status=replace(WELL, incidents_open=600))
    for form in ("table", "wide", "json", "yaml"):
        small_centre.asked.clear()
        done = healthctl("status", "-o", form, "--server", small_centre.url, "--token-file", str(token_file))
        assert (done.exit_code, len(small_centre.asked)) == (1, 1), done.output


def test_a_centre_without_the_route_may_be_older(
    healthctl: Callable[..., Result], small_centre: SmallCentre, token_file: Path
) -> None:
    done = healthctl("status", "--server", small_centre.url, "--token-file", str(token_file))
    assert (done.exit_code, done.stdout) == (3, "")
    assert "if the controller is older than healthctl, use healthctl of its version" in done.stderr


def test_what_a_node_carries_out_is_running_since_when() -> None:
    began = ActionView("a", "reset_gpu", "n", "running", AT, AT + 60, began_at=AT + 1)
    assert action_outcome(began) == f"running since {format_timestamp(AT + 1)}"
    assert action_outcome(replace(began, state="succeeded", finished_at=AT + 2)) == state_cell("succeeded")
