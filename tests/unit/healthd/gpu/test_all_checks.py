from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthd.findings.facts import Moment, Raise
from healthd.findings.gpu_state import GpuState, merge_reading
from healthd.gpu_monitoring.gpu_check_registry import make_gpu_checks
from healthd.samples.nvml import GpuConstants, GpuReading, Link
from healthd.thresholds import load_thresholds
from vocabulary.finding import Severity
from vocabulary.messages.wire import Gpu

COUNT = st.none() | st.sampled_from([0, 1, 2, 3, 8, 60, 95]) | st.integers(-(2**63), 2**64)
FLAG = st.none() | st.booleans()
TEXT = st.text(max_size=400)
LINK = st.builds(Link, st.integers(0, 30), active=FLAG, crc_errors=COUNT, replay_errors=COUNT, recovery_errors=COUNT)
OTHERS: dict[str, Any] = {
    "lost": st.booleans(),
    "errors": st.dictionaries(st.sampled_from(["power_mw", "handle"]), TEXT),
    "links": st.none() | st.lists(LINK, max_size=4).map(tuple),
    "remap_histogram": st.none() | st.lists(st.integers(0, 700), max_size=6).map(tuple),
    "processes": st.none(),
    **{name: st.none() | st.floats(0, 100) for name in ("sm_active_percent", "tensor_active_percent")},
    "dram_active_percent": st.none(),
}
FLAGS = ("remap_pending", "remap_failed", "sram_threshold_exceeded", "retirement_pending")
VALUES = {
    name: OTHERS.get(name, FLAG if name in FLAGS else COUNT) for name in GpuReading.__struct_fields__ if name != "index"
}
CONSTANTS = {
    "vbios": TEXT,
    "inforom": TEXT,
    "part_number": TEXT,
    "ecc_enabled": FLAG,
    "mig_enabled": FLAG,
    "slowdown_c": COUNT,
    "memory_max_c": COUNT,
    "sm_clock_max_mhz": COUNT,
    "pcie_width_max": COUNT,
    "pcie_generation_max": COUNT,
}
PRODUCTS = st.sampled_from(["", "NVIDIA H100 80GB HBM3", "NVIDIA GB200", "Tesla V100-SXM2-16GB"])
READING = st.fixed_dictionaries({}, optional=VALUES)
SWEEP = st.tuples(
    st.floats(0, 1000),
    st.lists(st.tuples(PRODUCTS, st.fixed_dictionaries({}, optional=CONSTANTS), READING), max_size=6),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(SWEEP, max_size=5))
def test_whatever_the_driver_says_every_check_answers_with_levels_that_can_be_shown(
    sweeps: list[tuple[float, list[tuple[str, dict[str, Any], dict[str, Any]]]]],
) -> None:
    checks = make_gpu_checks(load_thresholds())
    states: dict[int, GpuState] = {}
    at = 0.0
    for pause, readings in sweeps:
        at += pause
        for index, (product, constants, values) in enumerate(readings):
            gpu = Gpu(index=index, uuid=f"GPU-{index}", pci=f"0000:1{index}:00.0", name=product)
            reading = GpuReading(index=index, **values)
            latest = merge_reading(states[index].latest if index in states else None, reading)
            states[index] = GpuState(gpu, GpuConstants(index=index, **constants), latest, reading)
        for name, check in checks.items():
            for fact in check.judge(list(states.values()), Moment(at, at)):
                assert fact.check == name
                if isinstance(fact, Raise):
                    assert fact.severity.rank >= Severity.WARNING.rank
                    assert not fact.event
                    assert 0 < len(fact.summary) < 200
                    assert "None" not in fact.summary
                    assert all(type(value) in (str, int, float, bool) for value in fact.evidence.values())
                    assert all(len(str(value)) < 300 for value in fact.evidence.values())


@pytest.mark.parametrize("check", sorted(make_gpu_checks(load_thresholds())))
def test_a_gpu_of_which_nothing_is_known_is_neither_ill_nor_well(
    check: str, node: Callable[..., Any], gpu: Callable[..., GpuState]
) -> None:
    judge = node(check)
    silent = [gpu(index) for index in range(8)]
    for at in (0, 10_000):
        assert judge.raised(at, *silent) == set()
    lost = [gpu(index, lost=True) for index in range(8)]
    assert judge.unknown(20_000, *lost), "nor is one that was lost"
