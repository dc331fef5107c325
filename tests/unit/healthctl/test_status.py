"""What `healthctl status` calls well, what it tells first, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from healthctl.output import plain
from healthctl.status_page import Look, by_people, is_well, listed_rank, rank, status_page
from remediator.model.records import HandsOff
from remediator.model.views import ActionView, Awaited, DecisionView, IncidentView, NodeView, StatusView, StepView
from remediator.model.views_alerts import SilenceView
from remediator.model.views_work import AwaitingView
from tests.unit.healthctl.conftest import AT, FINDING, STATUS
from vocabulary.finding import Severity

WELL = replace(
    STATUS,
    nodes_by_state={"healthy": 1, "retired": 1},
    nodes_by_health={"healthy": 1, "unknown": 1},
    incidents_open=0,
    blocked=(),
    mode_by="",
    breaker="",
)


@pytest.mark.parametrize(
    ("status", "well"),
    [
        (WELL, True),
        (replace(WELL, mode="recommend", blocked=("mode is recommend: decisions are shown, not carried out",)), True),
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
    assert plain(status_page(Look(status))).startswith(f"{status.cluster} is well") is well


def incident(number: int, severity: Severity | None = None, **more: object) -> IncidentView:
    findings = () if severity is None else (replace(FINDING, severity=severity),)
    return replace(IncidentView(f"inc-{number}", "n", "open", "t", AT + number, findings=findings), **more)


def test_the_worst_is_told_first_and_a_test_last() -> None:
    worst = incident(3, Severity.FATAL)
    found = [incident(1), incident(0, Severity.FATAL, injected=True), worst, incident(2, Severity.WARNING)]
    assert [each.id for each in sorted(found, key=rank)] == ["inc-3", "inc-2", "inc-1", "inc-0"]
    asks = incident(9, awaits=(Awaited("d", "a plan"),))
    assert min([*found, asks], key=listed_rank) is asks


def test_a_cleared_finding_makes_nothing_worse() -> None:
    over = replace(incident(1), findings=(FINDING.cleared(AT, "reset"),))
    assert rank(over) == rank(incident(1))


@given(st.integers(0, 40), st.integers(0, 3))
def test_what_is_not_told_is_counted(open_count: int, told: int) -> None:
    found = [incident(number) for number in range(open_count)]
    text = plain(status_page(Look(replace(WELL, incidents_open=open_count), found, found[:told])))
    left = open_count - min(told, open_count)
    assert (f"and {left} more open incident" in text) is bool(left)


@given(st.integers(0, 20), st.integers(1, 20))
def test_a_screen_is_not_filled_with_what_blocks_or_waits(count: int, most: int) -> None:
    waiting = [AwaitingView(f"inc-{n}", "n", f"inc-{n}.d1", "a plan", AT, "t") for n in range(count)]
    blocked = tuple(f"reason {n}" for n in range(count))
    text = plain(status_page(Look(replace(WELL, blocked=blocked), awaiting=waiting, listed_max=most)))
    assert text.count("waits for you") == text.count("reason ") == min(count, most)
    assert (f"and {count - most} more: healthctl status -o wide" in text) is (count > most)
    assert (f"and {count - most} more wait: healthctl actions awaiting" in text) is (count > most)


def test_done_now_and_next_are_told_apart() -> None:
    def deed(verb: str, state: str, at: float) -> ActionView:
        return ActionView(verb, verb, "n", state, at, at, at)

    deeds = tuple(deed(f"deed{number}", "succeeded", AT + number) for number in range(6))
    view = incident(
        0,
        actions=(*deeds, deed("late", "failed", AT + 9), deed("open", "planned", AT + 10)),
        steps=(StepView("drain", "succeeded"), StepView("reset", "running", "30 s"), StepView("preflight", "pending")),
    )
    lines = [line.split(maxsplit=1) for line in plain(status_page(Look(WELL, [view], [view]))).splitlines() if line]
    assert [rest for name, rest in pairs(lines) if name == "now"] == ["reset: running (30 s)"]
    assert [rest for name, rest in pairs(lines) if name == "next"] == ["preflight"]
    done = [rest.partition(" ")[0] for name, rest in pairs(lines) if name == "done"]
    assert done == ["deed3", "deed4", "deed5", "late"], "the newest, in order, and none that is under way"


def pairs(lines: list[list[str]]) -> Iterator[tuple[str, str]]:
    yield from ((line[0], line[1]) for line in lines if len(line) == 2)


def deed(verb: str, at: float) -> ActionView:
    return ActionView(verb, verb, "n", "succeeded", at, at, at)


def test_what_was_done_to_the_node_is_not_lost_among_messages() -> None:
    deeds = (deed("cordon", AT), *(deed(verb, AT + n) for n, verb in enumerate(["abort"] * 9 + ["ticket", "alert"], 1)))
    view = incident(0, actions=deeds)
    text = plain(status_page(Look(WELL, [view], [view])))
    assert "cordon n: succeeded" in text
    assert "alert n:" not in text
    assert "and 8 more: healthctl incidents show inc-0" in text


def decided(answer: str) -> DecisionView:
    return DecisionView("d", AT, answer, "gpu-lost", "because", "p")


STEPS = (("cordon",), ("ticket", "alert"))
HELD = NodeView("n", "operator-held", "unhealthy", AT, "", AT, hands_off=HandsOff("ann"))


@pytest.mark.parametrize(
    ("view", "node", "words"),
    [
        (incident(0, decisions=(decided("recommend"),), proposed=STEPS), None, "would be done: 1 cordon, 2 ticket and alert"),
        (incident(0, decisions=(decided("hold"),), proposed=STEPS), None, "as soon as no guard refuses; then: 1 cordon"),
        (incident(0, awaits=(Awaited("d1", "a plan"),), proposed=STEPS), None, "2 ticket and alert; waits for a yes: healthctl actions approve d1"),
        (incident(0, state="waiting", waits_for_part=True), None, "healthctl nodes uncordon n 'WHAT WAS DONE'"),
        (incident(0, state="waiting", outcome="reset failed"), replace(HELD, hands_off=None), "healthctl incidents resolve inc-0"),
        (incident(0, state="waiting", outcome="reset failed"), replace(HELD, hands_off=None, held_by="us"), "healthctl nodes uncordon n"),
        (incident(0, node="rack:r7", decisions=(decided("hold"),)), None, "healthctl incidents resolve inc-0"),
        (incident(0, node="cluster:breaker"), None, "healthctl breaker reset"),
        (incident(0), HELD, "healthctl nodes release n"),
    ],
)  # fmt: skip
def test_the_next_step_is_said_with_its_command(view: IncidentView, node: NodeView | None, words: str) -> None:
    nodes = {} if node is None else {node.node: node}
    (line,) = [
        line
        for line in plain(status_page(Look(WELL, [view], [view], nodes=nodes))).splitlines()
        if line.startswith("next ")
    ]
    assert words in line


def test_what_is_stopped_or_waits_for_a_part_is_not_to_be_stopped() -> None:
    waiting = incident(0, state="waiting", waits_for_part=True)
    for view, nodes in ((incident(0), {"n": HELD}), (waiting, {}), (incident(0, decisions=(decided("observe"),)), {})):
        assert "stop it" not in plain(status_page(Look(WELL, [view], [view], nodes=nodes)))
    assert "stop it" in plain(status_page(Look(WELL, [incident(0)], [incident(0)])))


def test_one_node_that_waits_for_a_part_does_not_keep_automation_from_acting() -> None:
    view = incident(0, state="waiting", waits_for_part=True)
    status = replace(WELL, incidents_open=1, blocked=("inc-0 on n waits for a person: waits for replacement",))
    assert "kept from acting" not in plain(status_page(Look(status, [view], [view])))
    assert "inc-0 on n waits for a person" in plain(status_page(Look(status, [view])))


def test_a_mode_that_a_person_set_is_given_back_to_the_configuration() -> None:
    stopped = replace(WELL, mode="observe", mode_by="ann", blocked=("mode is observe (set by ann)",))
    text = plain(status_page(Look(stopped)))
    assert "healthctl mode config" in text
    assert "healthctl mode act" not in text


def test_what_many_nodes_share_is_told_first() -> None:
    rack = incident(5, node="rack:r7")
    assert min([incident(0, Severity.FATAL), rack], key=rank) is rack
    assert min([incident(0, state="waiting"), rack], key=listed_rank) is rack


def test_what_people_hold_or_silenced_and_what_nobody_decided_upon_is_named() -> None:
    def node(name: str, **more: object) -> NodeView:
        return replace(NodeView(name, "operator-held", "unhealthy", AT, "", AT), **more)

    nodes = [node("a", held_by="operator", incident="inc-1"), node("b", state="healthy"), node("c", state="retired")]
    found = by_people(nodes, [SilenceView("s", "*", "*", AT, AT + 60, "ann", "moving")])
    text = plain(status_page(Look(WELL, by_hand=found)))
    assert "a, by people; lift it: healthctl nodes uncordon NODE" in text
    assert "1 silence, the first ends 2023-11-14 22:14:20Z" in text
    assert "unhealthy all the same: b; see" in text
    assert not any(words for _, words in by_people([node("d", incident="inc-2")], []))
