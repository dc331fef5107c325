from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

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


def hot_node(
    gpu: Gpu, hot: dict[int, int], *, percent: int = 100, power: int = 500_000, mask: int = 0x48
) -> list[GpuState]:
    """Eight busy GPUs at 1950 MHz and 600 W; `hot` ones are held at these clocks."""
    return [
        gpu(
            index, MAX, sm_clock_mhz=hot.get(index, 1950), throttle_mask=mask if index in hot else 0, gpu_percent=percent,
            power_mw=power if index in hot else 600_000, temperature_c=91 if index in hot else 62,
        )
        for index in range(8)
    ]  # fmt: skip


def test_the_only_hot_gpu_is_a_suspect_within_two_minutes_with_its_numbers(node: Callable[..., Any], gpu: Gpu) -> None:
    assert lasting(node("clocks"), hot_node(gpu, {3: 1700})) == {"held_by_heat@3"}
    assert lasting(node("clocks"), hot_node(gpu, {3: 1700}, mask=0x20)) == {"held_by_heat@3"}


@pytest.mark.parametrize(
    "more",
    [
        {"hot": {3: 1700, 4: 1750}}, {"hot": dict.fromkeys(range(8), 1700)}, {"hot": {3: 1900}},
        {"hot": {3: 1700}, "percent": 10}, {"hot": {3: 1700}, "power": 690_000}, {"hot": {3: 1700}, "mask": 0x4},
        {"hot": {3: 1700}, "mask": 0x88}, {"hot": dict.fromkeys(range(8), 1700), "mask": 0x4},
    ],
    ids=["two hot", "all hot", "hot and fast", "idle", "more work", "power cap", "power brake", "power cap on all"],
)  # fmt: skip
def test_other_heat_is_no_suspect(node: Callable[..., Any], gpu: Gpu, more: dict[str, Any]) -> None:
    assert lasting(node("clocks"), hot_node(gpu, **more)) == set()


def test_two_cool_siblings_are_enough(node: Callable[..., Any], gpu: Gpu) -> None:
    states = hot_node(gpu, {0: 1700})
    assert lasting(node("clocks"), states[:3]) == {"held_by_heat@0"}
    assert lasting(node("clocks"), states[:2]) == set()


def test_a_second_hot_gpu_takes_the_suspicion_back(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("clocks")
    assert lasting(judge, hot_node(gpu, {3: 1700})) == {"held_by_heat@3"}
    both = hot_node(gpu, {3: 1700, 4: 1700})
    judge.say(130, *both)
    assert "held_by_heat@3" not in judge.say(250, *both)
