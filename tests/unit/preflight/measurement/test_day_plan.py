from __future__ import annotations

from collections import Counter

from preflight.plan import ANY_FAULT, LEVELS, SPECS, build_plan
from preflight.platform_measurement.day_plan import (
    ENDED_TEST,
    ENDING_FAULTS,
    GATES,
    GATES_FIRST,
    DayStep,
    estimate_seconds,
    find_target,
    plan_steps,
)
from preflight.platform_measurement.day_records import Stage

STEPS = plan_steps()


def test_every_fault_of_gate_and_standard_is_injected_once() -> None:
    injected = Counter(word for step in STEPS for word in step.inject)
    faults = {f"{test}:{fault}" for test in LEVELS["standard"] for fault in SPECS[test].faults}
    assert injected == Counter(faults | {f"{ENDED_TEST}:{fault}" for fault in ANY_FAULT})


def test_there_are_twenty_gates_and_the_first_three_come_before_any_fault() -> None:
    assert [step.stage for step in STEPS].count(Stage.GATES) == GATES == 20
    assert [step.stage for step in STEPS[: GATES_FIRST + 1]] == [*[Stage.GATES] * GATES_FIRST, Stage.FAULTS]
    assert {step.stage for step in STEPS} == set(Stage) - {Stage.DRIVER}


def test_every_step_is_a_plan_and_a_fault_that_ends_a_process_runs_alone() -> None:
    for step in STEPS:
        plan = build_plan(step.level, step.only, step.inject)
        assert len(plan.faults) == len(step.inject)
        ending = {f"{test}:{fault}" for test, faults in ENDING_FAULTS.items() for fault in faults} & set(step.inject)
        assert not ending or len(plan.specs) == 1
        if step.stage is Stage.STANDARD:
            assert {spec.test for spec in plan.specs} == set(plan.faults)


def test_times_are_estimated_from_the_gate() -> None:
    faults = DayStep(stage=Stage.FAULTS)
    assert estimate_seconds(DayStep(stage=Stage.GATES), 0.0, 0.0) > 0
    assert estimate_seconds(DayStep(stage=Stage.GATES), 10.0, 6.0) == 10.0
    assert estimate_seconds(faults, 10.0, 6.0) > 10.0
    alone = DayStep(stage=Stage.STANDARD, level="standard", only=("storage",))
    both = DayStep(stage=Stage.STANDARD, level="standard", only=("storage", "sustained_load"))
    extra = estimate_seconds(both, 10.0, 6.0) - estimate_seconds(alone, 10.0, 6.0)
    assert extra >= SPECS["sustained_load"].seconds["standard"]


def test_a_fault_is_injected_on_the_last_device_or_the_node() -> None:
    assert find_target("matmul_repeat", ["cuda:0", "cuda:1"]) == "cuda:1"
    assert find_target("software", ["cuda:0", "cuda:1"]) == find_target("matmul_repeat", []) == ""
