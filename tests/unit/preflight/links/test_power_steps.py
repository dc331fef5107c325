"""Power steps with real processes on the host and on a simulated `cuda`; schedule and judgement by themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.check_context import Context, Device
from preflight.checks.power_steps import (
    HALVES_S,
    StepsResult,
    check_power_steps,
    judge_power_steps,
    schedule_power_steps,
)
from preflight.host.load_sensors import HW_BRAKE, SensorReading, ThermalLimits
from preflight.results import Outcome, Result

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("links")]
Run = Callable[..., list[Result]]
DEVICE = Device(name="cuda:1", torch_name="cuda:1", index=1, label="GPU", uuid="GPU-1")


@pytest.mark.parametrize("kind", ["", " on cuda"])
def test_healthy_devices_pass_and_all_make_every_step(ranks: Run, kind: str) -> None:
    results = ranks(f"power_steps{kind}", 3)
    assert {result.outcome for result in results} == {Outcome.PASS}, results
    (steps,) = {result.evidence["steps"] for result in results}
    assert int(steps) > 10
    assert all(int(result.evidence["products"]) >= 2 * int(steps) for result in results)


@pytest.mark.parametrize("kind", ["", " on cuda"])
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("wrong", "1 of 2 matmul results differ from the first, in 1 word, at the rising edge of step 2, 0.02 s"),
        ("brake", "slowed down by the brake signal of the power supply"),
        ("lost", "the device failed: in step 2 of "),
    ],
)
def test_the_device_that_fails_in_a_step_is_named_and_no_other(ranks: Run, kind: str, fault: str, words: str) -> None:
    results = ranks(f"power_steps{kind}", 3, {1: fault})
    (failed,) = [result for result in results if result.outcome is not Outcome.PASS]
    assert (failed.outcome, failed.device[-2:]) == (Outcome.FAIL, ":1")
    assert words in failed.reason


def test_a_single_device_has_no_others_to_step_with() -> None:
    context = Context(
        device=DEVICE, devices=(DEVICE,), level="standard", seconds=1.0, fault="", note=lambda _text: None
    )
    (result,) = check_power_steps(context)
    assert result.outcome is Outcome.NOT_APPLICABLE


@given(st.floats(0, 200))
def test_a_schedule_alternates_fills_its_time_and_never_exceeds_it(seconds: float) -> None:
    steps = schedule_power_steps(seconds)
    ends = [step.off + step.half_s for step in steps]
    assert [step.on for step in steps] == pytest.approx([0.0, *ends[:-1]])
    assert [step.number for step in steps] == list(range(len(steps)))
    assert all(step.half_s > 0 for step in steps)
    if seconds >= 2 * HALVES_S[0]:
        assert seconds - 2 * HALVES_S[0] < ends[-1] <= seconds + 1e-9
    else:
        assert len(steps) == 1


def test_a_brake_between_two_steps_counts_and_late_steps_are_a_remark() -> None:
    readings = [
        SensorReading(at=at / 10, busy=True, power_w=690.0 if at % 2 else 120.0, reasons=HW_BRAKE * (at > 7))
        for at in range(10)
    ]
    failed = judge_power_steps(DEVICE, StepsResult(5, 40, 0, ""), readings, ThermalLimits(), [])
    assert failed.outcome is Outcome.FAIL
    assert "brake signal of the power supply, in 2 of 10" in failed.reason
    assert [place.gpu for place in failed.locations] == ["GPU-1"]
    assert (failed.evidence["power_min_w"], failed.evidence["power_max_w"]) == (120.0, 690.0)
    late = judge_power_steps(DEVICE, StepsResult(5, 40, 3, ""), readings[:7], ThermalLimits(), [])
    assert (late.outcome, late.remarks) == (
        Outcome.PASS,
        ("3 of 5 steps began over 5 ms late: the devices did not step together",),
    )
