from __future__ import annotations

import random
from collections import defaultdict

import msgspec
import pytest

from preflight.expectations.measurement_keys import compute_spread
from preflight.platform_measurement.day_records import FigureNoise
from preflight.platform_measurement.false_alarms import NoisyNode, count_false_alarms
from tests.unit.preflight.measurement.simulated_days import DEVICES

RATE = FigureNoise(
    test="matmul_repeat", figure="product_rate", unit="TFLOP/s", setting="bf16", usual=790.0, between=0.0, repeat=0.0
)
TOGETHER = FigureNoise(
    test="collectives", figure="latency", unit="us", setting="", usual=30.0, between=0.02, repeat=0.01, joint=True
)


def take(noise: FigureNoise, runs: int) -> dict[str, list[float]]:
    node, values = NoisyNode([noise], DEVICES, random.Random(3)), defaultdict(list)  # noqa: S311 - no secret
    for _ in range(runs):
        for result in node.run():
            values[result.device].append(result.figures[0].value)
    return values


def test_a_simulated_node_scatters_as_it_is_asked_to() -> None:
    assert take(RATE, 2) == {device.name: [790.0] * 2 for device in DEVICES}
    repeats = take(msgspec.structs.replace(RATE, repeat=0.05), 400)
    assert compute_spread(repeats["cuda:1"]) == pytest.approx(0.05, rel=0.2)
    apart = take(msgspec.structs.replace(RATE, between=0.05), 2)
    assert len({tuple(values) for values in apart.values()}) == len(DEVICES)
    assert all(first == second for first, second in apart.values())
    assert len({tuple(values) for values in take(TOGETHER, 3).values()}) == 1
    wild = take(msgspec.structs.replace(RATE, repeat=2.0), 100)
    assert all(value > 0 for values in wild.values() for value in values)


def test_a_platform_that_scatters_too_far_is_seen() -> None:
    calm = count_false_alarms([RATE, TOGETHER], DEVICES, measured=False, size=(1, 30))
    assert (calm.nodes, calm.failed, calm.inconclusive) == (30, 0, 0)
    wild = [msgspec.structs.replace(RATE, setting=f"{number}", between=0.2) for number in range(20)]
    assert count_false_alarms(wild, DEVICES, measured=False, size=(1, 30)).inconclusive > 3


def test_the_simulation_ends_with_the_time_but_judges_one_node() -> None:
    assert count_false_alarms([RATE], DEVICES, measured=True, size=(9, 9), time_left=lambda: False).nodes == 1
