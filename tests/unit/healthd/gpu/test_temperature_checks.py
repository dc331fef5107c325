from __future__ import annotations

from collections.abc import Callable
from typing import Any

from healthd.findings.gpu_state import GpuState

Gpu = Callable[..., GpuState]


def test_a_core_without_margin_counts_when_it_lasts_and_ends_well_below(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("temperature")
    assert judge.raised(0, gpu(temperature_margin_c=2)) == set()
    assert judge.raised(60, gpu(temperature_margin_c=2)) == {"core@0"}
    assert judge.raised(61, gpu(temperature_margin_c=7)) == set()
    assert "core@0" in judge.unknown(1000, gpu(temperature_margin_c=7)), "at the edge, what was said stays"
    assert "core@0" in judge.say(1001, gpu(temperature_margin_c=20)), "so it does for a while once it is cool"
    assert "core@0" not in judge.say(1301, gpu(temperature_margin_c=20))


def test_where_the_driver_tells_no_margin_the_threshold_does(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("temperature")
    near, far = {"slowdown_c": 87}, {"slowdown_c": 97}
    for at in (0, 300):
        said = judge.say(at, gpu(0, near, temperature_c=85), gpu(1, far, temperature_c=85), gpu(2, temperature_c=99))
    assert said["core@0"].evidence == {"temperature_c": 85, "margin_c": 2}
    assert "core@1" not in said
    assert "core@2" in judge.unknown(301, gpu(2, temperature_c=99)), "without a threshold nobody knows"


def test_memory_is_judged_by_its_own_maximum(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("temperature")
    for at in (0, 60):
        raised = judge.raised(at, gpu(0, {"memory_max_c": 95}, memory_temperature_c=93, temperature_margin_c=30))
    assert raised == {"memory@0"}


def test_a_model_has_its_own_margin(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("temperature", {"skus": {"H100": {"temperature": {"core_margin_c": 0}}}})
    for at in (0, 60):
        raised = judge.raised(at, gpu(0, temperature_margin_c=2), gpu(1, product="NVIDIA B200", temperature_margin_c=2))
    assert raised == {"core@1"}
