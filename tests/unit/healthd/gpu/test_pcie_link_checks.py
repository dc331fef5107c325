from __future__ import annotations

from collections.abc import Callable
from typing import Any

from healthd.findings.gpu_state import GpuState

Gpu = Callable[..., GpuState]
MAX = {"pcie_width_max": 16, "pcie_generation_max": 5}


def test_lost_lanes_count_busy_or_not(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("pcie_link")
    assert judge.raised(0, gpu(0, MAX, pcie_width=8)) == set()
    assert judge.raised(120, gpu(0, MAX, pcie_width=8)) == {"width@0"}
    assert "width@0" in judge.unknown(130, gpu(0, MAX, pcie_width=16))
    assert "width@0" not in judge.say(250, gpu(0, MAX, pcie_width=16))


def test_a_lower_generation_counts_only_while_busy(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("pcie_link")
    idle = gpu(0, MAX, pcie_generation=1, gpu_percent=0, throttle_mask=1)
    busy = gpu(1, MAX, pcie_generation=1, gpu_percent=100, throttle_mask=0)
    for at in (0, 120):
        raised = judge.raised(at, idle, busy)
    assert raised == {"generation@1"}
    assert "generation@0" in judge.unknown(121, idle, busy)


def test_replays_count_by_their_rate_and_by_model(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("pcie_link", {"skus": {"B200": {"pcie_link": {"replays_in_window": 200}}}})
    for at, count in ((0, 9000), (60, 9100)):
        raised = judge.raised(at, gpu(0, pcie_replays=count), gpu(1, product="NVIDIA B200", pcie_replays=count))
    assert raised == {"replays@0"}
    assert "replays@0" in judge.unknown(61, gpu()), "not read in this sweep"
    assert judge.raised(1000, gpu(pcie_replays=9100)) == set()
    assert "replays@0" not in judge.say(1600, gpu(pcie_replays=9100))
