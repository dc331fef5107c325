from __future__ import annotations

from collections.abc import Callable
from typing import Any

from healthd.findings.gpu_state import GpuState

Gpu = Callable[..., GpuState]
MAX = {"sm_clock_max_mhz": 1980}


def working(gpu: Gpu, clocks: list[int], mask: int = 0, percent: int = 100) -> list[GpuState]:
    return [
        gpu(index, MAX, sm_clock_mhz=clock, throttle_mask=mask, gpu_percent=percent)
        for index, clock in enumerate(clocks)
    ]


def lasting(judge: Any, states: list[GpuState]) -> set[str]:
    judge.raised(0, *states)
    raised: set[str] = judge.raised(120, *states)
    return raised


def test_a_busy_gpu_far_below_its_maximum_or_its_siblings(node: Callable[..., Any], gpu: Gpu) -> None:
    assert lasting(node("clocks"), working(gpu, [900])) == {"low@0"}
    assert lasting(node("clocks"), working(gpu, [1500, 1900, 1900, 1900, 1950])) == {"below_siblings@0"}
    assert lasting(node("clocks"), working(gpu, [1600, 1900, 1900, 1900, 1950])) == set()


def test_four_siblings_or_silence(node: Callable[..., Any], gpu: Gpu) -> None:
    assert lasting(node("clocks"), working(gpu, [1500, 1900, 1900, 1900])) == set()


def test_idle_gpus_and_those_held_down_for_a_known_reason_are_not_judged(node: Callable[..., Any], gpu: Gpu) -> None:
    for mask, percent in ((0x4, 100), (0x2, 100), (0x48, 100), (0x1, 100), (0, 10)):
        judge = node("clocks")
        states = working(gpu, [300], mask, percent)
        assert lasting(judge, states) == set()
        assert "low@0" in judge.unknown(300, *states)


def test_it_ends_when_the_clock_is_up_again(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("clocks", {"skus": {"H100": {"clocks": {"max_percent": 70}}}})
    assert lasting(judge, working(gpu, [1300])) == {"low@0"}
    assert "low@0" in judge.unknown(130, *working(gpu, [1900]))
    assert "low@0" not in judge.say(250, *working(gpu, [1900]))
