"""The checks must be able to fail: from a story that went well, each test spoils one fact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from healthctl.demo.cluster_observer import LaunchEvent
from healthctl.demo.outcome_checks import CHECKS, DemoFacts, LossRow, measure_latencies_ms, read_losses, run_checks
from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from remediator.model.views import ActionView, DecisionView, EventView, IncidentView, NodeView
from vocabulary.finding import Finding, Severity
from vocabulary.identity import Component, ComponentKind

STEPS = 12


def loss(step: int) -> str:
    return (1.0 / (step + 1)).hex()


def node(name: str, state: str) -> NodeView:
    return NodeView(node=name, state=state, health="healthy", since=0.0, why="", last_seen=1.0)


def action(incident: str, verb: str, name: str, **more: object) -> ActionView:
    details = {"id": f"{incident}.d1.s0.0.{verb}.{name}", "state": "succeeded", "planned_at": 10.0, "deadline": 99.0}
    return ActionView(verb=verb, node=name, **{**details, **more})  # type: ignore[arg-type]  # by name


def incident(name: str, at: str, state: str, kind: str, verbs: tuple[str, ...]) -> IncidentView:
    check, _, code = kind.partition("/")
    finding = Finding(
        id=f"f-{name}",
        node=at,
        check=check,
        code=code,
        component=Component(ComponentKind.GPU, name="GPU-0"),
        severity=Severity.FATAL,
        summary="",
        first_seen=10.0,
        last_seen=10.0,
        origin="o",
        injected=True,
    )
    decision = DecisionView(id=f"{name}.d1", at=10.25, answer="act", rule="r", reason="", policy="p")
    actions = tuple(action(name, verb, at, finished_at=10.5, data={"mailbox_at": 10.75}) for verb in verbs)
    return IncidentView(
        id=name,
        node=at,
        state=state,
        title="",
        opened_at=10.0,
        injected=True,
        findings=(finding,),
        decisions=(decision,),
        actions=actions,
    )


def launch(event: str, attempt: int, nodes: tuple[str, ...] = (), condemned: tuple[str, ...] = ()) -> LaunchEvent:
    return LaunchEvent(at=20.0, event=event, text="", attempt=attempt, nodes=nodes, condemned=condemned)


@pytest.fixture
def good() -> DemoFacts:
    first = incident("i1", "n1", "closed", "row_remap/pending", ("cordon", "reset_gpu", "run_preflight", "resume"))
    second = incident("i2", "n2", "waiting", "xid/79", ("cordon", "abort"))
    rows = [(1, step) for step in range(5)] + [(2, step) for step in range(5, 9)] + [(3, step) for step in range(8, 12)]
    return DemoFacts(
        graceful_node="n1",
        abort_node="n2",
        graceful_kind="row_remap/pending",
        abort_kind="xid/79",
        needs_reset=True,
        steps=STEPS,
        every=4,
        losses=tuple(LossRow(step, loss(step), attempt) for attempt, step in rows),
        reference={step: loss(step) for step in range(STEPS)},
        launches=(
            launch("attempt_started", 1, ("n1", "n2", "n3")),
            launch("attempt_ended", 1, condemned=("n1",)),
            launch("attempt_started", 2, ("n2", "n3", "n4")),
            launch("attempt_ended", 2, condemned=("n2",)),
            launch("attempt_started", 3, ("n3", "n4", "n5")),
        ),
        nodes={"n1": node("n1", "probation"), "n2": node("n2", "replacing"), "n3": node("n3", "healthy")},
        holds={
            "n1": SchedulerNodeState("n1", schedulable=True),
            "n2": SchedulerNodeState("n2", schedulable=False, owner=HoldOwner.US, reason="gpu-healthd: i2 gpu-lost"),
            "n3": SchedulerNodeState("n3", schedulable=True),
        },
        incidents=(first, second),
        events=tuple(
            EventView(seq=i, at=11.0, kind="action_ended", actor="remediator", text="", data={"action": a.id})
            for i, a in enumerate((*first.actions, *second.actions))
        ),
        job_exit=0,
    )


def test_a_story_that_went_well_passes_every_check(good: DemoFacts) -> None:
    checks = run_checks(good)
    assert [check.name for check in checks if not check.ok] == []
    assert len(checks) == len(CHECKS)


def test_an_incident_that_only_called_people_hides_none_that_acted(good: DemoFacts) -> None:
    told = incident("i9", "n1", "closed", "training/hang", ("alert",))
    told = replace(told, actions=tuple(replace(a, id=f"{a.id}.told") for a in told.actions))
    events = tuple(
        EventView(seq=90 + i, at=11.0, kind="action_ended", actor="remediator", text="", data={"action": a.id})
        for i, a in enumerate(told.actions)
    )
    checks = run_checks(replace(good, incidents=(told, *good.incidents), events=(*good.events, *events)))
    assert [check.detail for check in checks if not check.ok] == []


def test_steps_lost_are_counted_per_way_out(good: DemoFacts) -> None:
    assert (good.steps_lost("n1"), good.steps_lost("n2"), good.steps_lost("n3")) == (0, 1, None)


def without_losses_of(attempt: int) -> Callable[[DemoFacts], DemoFacts]:
    return lambda facts: replace(facts, losses=tuple(row for row in facts.losses if row.attempt != attempt))


def with_hold(hold: SchedulerNodeState) -> Callable[[DemoFacts], DemoFacts]:
    return lambda facts: replace(facts, holds={**facts.holds, hold.node: hold})


def with_state(name: str, state: str) -> Callable[[DemoFacts], DemoFacts]:
    return lambda facts: replace(facts, nodes={**facts.nodes, name: node(name, state)})


def without_action(verb: str) -> Callable[[DemoFacts], DemoFacts]:
    def spoil(facts: DemoFacts) -> DemoFacts:
        kept = [replace(i, actions=tuple(a for a in i.actions if a.verb != verb)) for i in facts.incidents]
        return replace(facts, incidents=tuple(kept))

    return spoil


def wrong_loss(facts: DemoFacts) -> DemoFacts:
    bit_off = LossRow(3, float.fromhex(loss(3)).__add__(1e-16).hex(), 1)
    return replace(facts, losses=(*facts.losses, bit_off))


def twice(facts: DemoFacts) -> DemoFacts:
    return replace(facts, events=(*facts.events, facts.events[0]))


def undecided(facts: DemoFacts) -> DemoFacts:
    return replace(facts, incidents=(replace(facts.incidents[0], decisions=()), facts.incidents[1]))


def unmarked(facts: DemoFacts) -> DemoFacts:
    first, second = facts.incidents
    return replace(facts, incidents=(replace(first, findings=(replace(first.findings[0], injected=False),)), second))


def back_on_the_condemned(facts: DemoFacts) -> DemoFacts:
    return replace(facts, launches=(*facts.launches, launch("attempt_started", 4, ("n2", "n3", "n4"))))


def two_steps_back(facts: DemoFacts) -> DemoFacts:
    return replace(facts, losses=(*facts.losses[:5], LossRow(3, loss(3), 2), LossRow(4, loss(4), 2), *facts.losses[5:]))


@pytest.mark.parametrize(
    ("spoil", "failing"),
    [
        (lambda facts: replace(facts, trouble="waited 60 s"), {"scenario complete"}),
        (lambda facts: replace(facts, job_exit=92), {"job finished"}),
        (lambda facts: replace(facts, job_exit=None), {"job finished"}),
        (wrong_loss, {"loss bit for bit"}),
        (lambda facts: replace(facts, reference={}), {"loss bit for bit"}),
        (without_losses_of(3), {"loss bit for bit", "exit by abort"}),
        (two_steps_back, {"graceful exit"}),
        (lambda facts: replace(facts, every=0), {"exit by abort"}),
        (back_on_the_condemned, {"isolated nodes left the job"}),
        (without_action("run_preflight"), {"n1 passed its test and is back on probation"}),
        (without_action("reset_gpu"), {"n1 passed its test and is back on probation"}),
        (with_state("n1", "healthy"), {"n1 passed its test and is back on probation"}),
        (
            with_hold(SchedulerNodeState("n1", schedulable=None, reason="no answer")),
            {"n1 passed its test and is back on probation"},
        ),
        (with_hold(SchedulerNodeState("n2", schedulable=True)), {"n2 stays out for replacement"}),
        (
            with_hold(SchedulerNodeState("n2", schedulable=False, owner=HoldOwner.OPERATOR)),
            {"n2 stays out for replacement"},
        ),
        (with_state("n2", "draining"), {"n2 stays out for replacement"}),
        (with_state("n3", "suspect"), {"healthy nodes untouched"}),
        (with_hold(SchedulerNodeState("n3", schedulable=False, owner=HoldOwner.US)), {"healthy nodes untouched"}),
        (twice, {"no action repeated, none without a decision"}),
        (undecided, {"no action repeated, none without a decision"}),
        (unmarked, {"injected faults marked as such"}),
    ],
)
def test_each_check_sees_what_it_is_for(
    good: DemoFacts, spoil: Callable[[DemoFacts], DemoFacts], failing: set[str]
) -> None:
    assert {check.name for check in run_checks(spoil(good)) if not check.ok} == failing


def test_no_facts_at_all_fail_and_do_not_crash(good: DemoFacts) -> None:
    empty = replace(
        good, losses=(), reference={}, launches=(), nodes={}, holds={}, incidents=(), events=(), job_exit=None
    )
    assert {check.ok for check in run_checks(empty)} <= {True, False}
    assert not all(check.ok for check in run_checks(empty))
    assert measure_latencies_ms(empty, {}) == {}


def test_a_rank_killed_on_the_way_out_may_cost_up_to_one_checkpoint(good: DemoFacts) -> None:
    spoiled = replace(two_steps_back(good), killed_in_graceful=True)
    assert all(check.ok for check in run_checks(spoiled))


@pytest.mark.parametrize(("verb", "followed"), [("alert", True), ("cordon", False)])
def test_from_a_decision_that_waits_only_a_call_follows(good: DemoFacts, verb: str, *, followed: bool) -> None:
    waits = incident("i3", "n3", "waiting", "job/exit", (verb,))
    waits = replace(waits, decisions=(replace(waits.decisions[0], answer="approve"),))
    spoiled = replace(good, incidents=(*good.incidents, waits))
    assert ("no action repeated, none without a decision" in {c.name for c in run_checks(spoiled) if c.ok}) is followed


def test_a_swap_says_itself_how_many_finished_steps_it_lost(good: DemoFacts) -> None:
    launches = (
        LaunchEvent(1.0, "attempt_started", "", 1, nodes=("n1", "n2")),
        LaunchEvent(2.0, "rank_replaced", "", 1, generation=1, before="n1"),
        LaunchEvent(3.0, "swapped", "", 1, generation=1, lost=2),
        LaunchEvent(4.0, "rank_replaced", "", 1, generation=2, before="n2"),
        LaunchEvent(5.0, "swapped", "", 1, generation=2),
    )
    swapped = replace(good, launches=launches)
    assert (swapped.steps_lost("n1"), swapped.steps_lost("n2")) == (2, 0)
    found = measure_latencies_ms(swapped, {(1, 0): 1.0, (1, 1): 12.0, (1, 2): 13.5})
    assert found["graceful: fault → training again"] == 2000.0
    assert found["abort: fault → training again"] == 3500.0


def test_latencies_count_from_the_fault_to_the_slowest_node(good: DemoFacts) -> None:
    found = measure_latencies_ms(good, {(1, 0): 1.0, (2, 0): 12.0, (3, 0): 13.5})
    assert found["graceful: fault → decision"] == 250.0
    assert found["abort: fault → node drained"] == 500.0
    assert found["abort: fault → order in every mailbox"] == 750.0
    assert found["graceful: fault → training again"] == 2000.0
    assert found["abort: fault → training again"] == 3500.0
    assert "abort: fault → checkpoint complete" not in found


def test_a_loss_line_torn_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "losses.jsonl"
    path.write_text('{"step": 0, "loss": "0x1p+0", "attempt": "1"}\n{"step": 1, "lo\n{"step": 2}\n[]\n')
    assert read_losses(path) == (LossRow(0, "0x1p+0", 1),)
    assert read_losses(tmp_path / "none") == ()


@given(st.binary(max_size=200))
def test_any_bytes_are_no_crash(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("losses") / "losses.jsonl"
    path.write_bytes(data)
    read_losses(path)
