from __future__ import annotations

from collections.abc import Callable
from typing import Any

from healthd.findings.gpu_state import GpuState

Gpu = Callable[..., GpuState]


def lasting(judge: Any, *states: GpuState) -> set[str]:
    judge.raised(0, *states)
    raised: set[str] = judge.raised(120, *states)
    return raised


def test_more_than_the_limit(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("power")
    assert lasting(judge, gpu(power_mw=850_000, power_limit_mw=700_000)) == {"above_limit@0"}
    good = gpu(power_mw=720_000, power_limit_mw=700_000)
    assert "above_limit@0" in judge.unknown(121, good)
    assert "above_limit@0" not in judge.say(241, good)
    own = node("power", {"skus": {"H100": {"power": {"limit_percent": 130}}}})
    assert lasting(own, gpu(power_mw=850_000, power_limit_mw=700_000)) == set()


def test_less_than_siblings_counts_only_if_it_computes_as_much(node: Callable[..., Any], gpu: Gpu) -> None:
    def group(tensor: float | None, siblings: int = 7, usual: float = 60) -> list[GpuState]:
        others = [gpu(i, power_mw=650_000, tensor_active_percent=usual) for i in range(1, siblings + 1)]
        return [gpu(0, power_mw=300_000, tensor_active_percent=tensor), *others]

    assert lasting(node("power"), *group(60)) == {"below_siblings@0"}
    assert lasting(node("power"), *group(20)) == set(), "it waits for the others"
    assert lasting(node("power"), *group(None)) == set()
    assert lasting(node("power"), *group(60, siblings=3)) == set()
    assert lasting(node("power"), *group(5, usual=5)) == set(), "nobody does much"


def test_a_reading_that_fails_is_said_and_one_that_is_not_there_is_not(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("power")
    assert lasting(judge, gpu(0, errors={"power_mw": "Unknown Error"}), gpu(1)) == {"unreadable@0"}
    judge.raised(130, gpu(0, power_mw=70_000))
    assert "unreadable@0" not in judge.say(250, gpu(0, power_mw=70_000))
