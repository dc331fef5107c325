from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from healthd.findings.gpu_state import GpuState
from vocabulary.finding import Severity

Gpu = Callable[..., GpuState]


def test_a_gpu_outside_the_fabric_takes_no_work(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("fabric")
    states = [
        gpu(0, fabric_state=3, fabric_status=0),
        gpu(1, fabric_state=2),
        gpu(2, fabric_state=3, fabric_status=999),
    ]
    assert judge.raised(0, *states) == set(), "it may be about to join"
    said = judge.say(300, *states)
    assert {name for name in said if "state" in name or "status" in name} >= {"state@1", "status@2"}
    assert said["state@1"].severity is said["status@2"].severity is Severity.ERROR
    assert judge.raised(301, gpu(1, fabric_state=3, fabric_status=0), gpu(0, fabric_state=3)) == set()


def test_one_that_is_alone_or_knows_of_no_fabric_is_not_judged(node: Callable[..., Any], gpu: Gpu) -> None:
    for states in ([gpu(0, fabric_state=2)], [gpu(0), gpu(1, fabric_state=0)]):
        judge = node("fabric")
        assert judge.raised(0, *states) == set()
        assert judge.raised(1000, *states) == set()


@pytest.mark.parametrize(
    ("mask", "codes"),
    [
        (0b01, {"degraded_bandwidth@0"}),
        (0b01 << 2, {"route_recovery@0"}),
        (0b01 << 4, {"route_unhealthy@0"}),
        (0b01 << 6, {"access_timeout@0"}),
        (5 << 8, {"misconfigured@0"}),
        (2 << 14, {"manager@0"}),
        (0b10_10_10_10 | 1 << 8 | 1 << 12 | 1 << 14, set()),
        (0, set()),
    ],
)
def test_the_health_mask_bit_by_bit(mask: int, codes: set[str], node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("fabric")
    judge.raised(0, gpu(fabric_health_mask=mask))
    assert judge.raised(120, gpu(fabric_health_mask=mask)) == codes
    well = 0b10_10_10_10 | 1 << 8 | 1 << 12 | 1 << 14
    assert codes <= judge.unknown(121, gpu(fabric_health_mask=well))
    assert codes.isdisjoint(judge.say(241, gpu(fabric_health_mask=well)))
