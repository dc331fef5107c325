from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from healthd.findings.gpu_state import GpuState

Gpu = Callable[..., GpuState]
HW, THERMAL, BRAKE = 0x08, 0x40, 0x80


@pytest.mark.parametrize(
    ("mask", "codes"),
    [
        (0x20, {"sw_thermal@0"}),
        (HW | THERMAL, {"hw_thermal@0"}),
        (HW | BRAKE, {"hw_power_brake@0"}),
        (HW, {"hw_slowdown@0"}),
        (0x01 | 0x02 | 0x04 | 0x10 | 0x100, set()),
    ],
)
def test_heat_and_brakes_are_faults_and_a_cap_or_an_idle_gpu_is_none(
    mask: int, codes: set[str], node: Callable[..., Any], gpu: Gpu
) -> None:
    judge = node("throttle")
    assert judge.raised(0, gpu(throttle_mask=mask)) == set()
    assert judge.raised(30, gpu(throttle_mask=mask)) == codes
    assert judge.raised(31, gpu(throttle_mask=0)) == set()
    assert codes <= judge.unknown(32, gpu(throttle_mask=0)), "it may come back at once"
    assert codes.isdisjoint(judge.say(331, gpu(throttle_mask=0)))


def test_heat_that_comes_and_goes_between_two_looks_is_seen_in_its_sum(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("throttle")
    second = 10**9
    assert "thermal_time@0" in judge.unknown(0, gpu(throttled_thermal_ns=0))
    assert judge.raised(60, gpu(throttled_thermal_ns=20 * second)) == set()
    assert judge.raised(120, gpu(throttled_thermal_ns=30 * second)) == {"thermal_time@0"}
    assert "thermal_time@0" in judge.unknown(121, gpu()), "not read in this sweep"
    assert judge.raised(180, gpu(throttled_thermal_ns=0)) == set(), "the driver was loaded anew"
    assert "thermal_time@0" not in judge.say(2000, gpu(throttled_thermal_ns=0))


def test_a_model_has_its_own_share(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("throttle", {"skus": {"B200": {"throttle": {"thermal_percent": 50}}}})
    for at, spent in ((0, 0), (60, 60 * 10**9)):
        states = [gpu(0, throttled_thermal_ns=spent), gpu(1, product="NVIDIA B200", throttled_thermal_ns=spent)]
        raised = judge.raised(at, *states)
    assert raised == {"thermal_time@0"}
