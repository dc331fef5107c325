"""A check is asked only when its answer may differ. What the node then says is what asking always would have said."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from healthd.findings.facts import LevelFact, Moment
from healthd.findings.finding_ledger import FindingLedger
from healthd.findings.gpu_state import GpuState
from healthd.gpu_monitoring import gpu_check_registry
from healthd.gpu_monitoring.gpu_check_registry import GPU_CHECKS, GpuCheck, GpuCheckSpec, make_gpu_checks
from healthd.gpu_monitoring.gpu_monitor import GpuMonitor
from healthd.gpu_monitoring.simulated_gpus import SimulatedGpus
from healthd.samples.nvml import GpuConstants, GpuReading, Inventory, Link, NvmlHang, Process, Sweep
from healthd.thresholds import load_thresholds
from vocabulary.messages.wire import Gpu

GPUS = 6
SEEDS = 8
STEPS_S = (0.05, 1.0, 1.0, 1.0, 1.0, 10.0, 61.0, 700.0)
# Few values for each field, on both sides of what the checks compare with, so that values come back and stay.
VALUES: dict[str, Sequence[Any]] = {
    "temperature_c": (40, 88, 95),
    "sm_clock_mhz": (1980, 1200, 345),
    "power_mw": (90_000, 650_000, 800_000),
    "throttle_mask": (0, 0, 1, 0x8, 0x20, 0x40, 0x80),
    "memory_temperature_c": (50, 94, 99),
    "temperature_margin_c": (40, 1, -1, None),
    "gpu_percent": (0, 100),
    "memory_percent": (1, 1, 1, 40),
    "processes": ((Process(1),), (Process(1),), ()),
    "power_limit_mw": (700_000,),
    "ecc_corrected": (0, 500, 1_000_000),
    "ecc_uncorrected": (0, 1),
    "rows_remapped_corrected": (0, 3),
    "rows_remapped_uncorrected": (0, 500),
    "remap_pending": (False, True),
    "remap_failed": (False, True),
    "recovery_action": (0, 0, 1, 2, 9),
    "pcie_generation": (5, 1),
    "pcie_width": (16, 8),
    "ecc_uncorrected_aggregate": (0, 500),
    "sram_threshold_exceeded": (False, True),
    "remap_histogram": ((640, 0, 0, 0, 0), (600, 0, 0, 20, 20)),
    "retired_pages_corrected": (0, 64),
    "retired_pages_uncorrected": (0, 64),
    "retirement_pending": (False, True),
    "pcie_replays": (0, 10_000, 1_000_000),
    "throttled_thermal_ns": (0, 10**11, 10**12),
    "fabric_state": (3, 2, 0),
    "fabric_status": (0, 1),
    "fabric_health_mask": (0, 0x2, 0x1, 0x15),
    "tensor_active_percent": (0.0, 60.0),
    "persistence": (True, False),
}
CONSTANTS: dict[str, Sequence[Any]] = {
    "vbios": ("96.00", "96.00", "95.00"),
    "slowdown_c": (90,),
    "memory_max_c": (95,),
    "sm_clock_max_mhz": (1980,),
    "pcie_generation_max": (5,),
    "pcie_width_max": (16,),
    "ecc_enabled": (True, True, False),
}
PRODUCTS = ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")

THRESHOLDS = load_thresholds()


def history(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - the same one again for the same seed


class AskedAlways:
    """The same check without the knowledge of when it need not be asked."""

    def __init__(self, check: GpuCheck) -> None:
        self._check = check

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        return self._check.judge(gpus, now)

    def may_differ(self, gpus: Sequence[GpuState], now: Moment) -> bool:  # noqa: ARG002 - a check's signature
        return True


class Counting:
    """Counts how often a check is asked."""

    def __init__(self, check: GpuCheck) -> None:
        self._check = check
        self.asked = 0

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        self.asked += 1
        return self._check.judge(gpus, now)

    def may_differ(self, gpus: Sequence[GpuState], now: Moment) -> bool:
        return self._check.may_differ(gpus, now)


def watch_of(checks: dict[str, Any]) -> tuple[GpuMonitor, FindingLedger]:
    ledger = FindingLedger("n1", "boot")
    return GpuMonitor(ledger, (), checks, SimulatedGpus(ledger, {})), ledger


def inventory(random: Random) -> Inventory:
    gpus = tuple(
        Gpu(index=i, uuid=f"GPU-{i}", pci=f"0000:1{i}:00.0", name=random.choice(PRODUCTS)) for i in range(GPUS)
    )
    constants = tuple(
        GpuConstants(index=i, **{name: random.choice(values) for name, values in CONSTANTS.items()})
        for i in range(GPUS)
    )
    return Inventory("570", GPUS, gpus, constants)


def reading(index: int, random: Random, now: dict[str, Any]) -> GpuReading:
    """Some of the fields, most of them as they were."""
    if random.random() < 0.02:
        return GpuReading(index=index, lost=True)
    for name in random.sample(sorted(VALUES), 2):
        if random.random() < 0.3:
            now[name] = random.choice(VALUES[name])
    if random.random() < 0.1:
        errors = random.choice((0, 0, 5000))
        now["links"] = tuple(Link(n, random.random() < 0.9, crc_errors=errors) for n in range(4))
    depth = random.random()
    names = [name for n, name in enumerate(now) if n < 4 or random.random() < depth]
    errors = {"power_mw": "unknown error"} if random.random() < 0.05 else {}
    return GpuReading(index=index, errors=errors, **{name: now[name] for name in names})


def play(seed: int, steps: int, *watches: GpuMonitor) -> int:
    """One random history for all of them; how many sweeps."""
    random = history(seed)
    at, values = 1000.0, [{name: choices[0] for name, choices in VALUES.items()} for _ in range(GPUS)]
    first = inventory(random)
    for watch in watches:
        watch.take(first, Moment(at, at))
    sweeps = 0
    for _ in range(steps):
        at += random.choice(STEPS_S)
        sample: Any
        if (what := random.random()) < 0.02:
            sample = inventory(random)
        elif what < 0.04:
            sample = NvmlHang(at, 3, "temperature", 5.0)
        else:
            sample = Sweep(at, 0.01, tuple(reading(i, random, values[i]) for i in range(GPUS)))
            sweeps += 1
        for watch in watches:
            watch.take(sample, Moment(at, at))
    return sweeps


@settings(max_examples=60, deadline=None)
@example(1139)  # heat holds a clock only if the GPU draws no more power than its siblings
@given(st.integers(0, 2**32))
def test_the_findings_are_those_of_asking_every_check_in_every_sweep(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_check_registry, "ASKED_ANYWAY_S", math.inf)
        always = {name: AskedAlways(check) for name, check in make_gpu_checks(THRESHOLDS).items()}
        (reference, expected), (watch, ledger) = watch_of(always), watch_of(dict(make_gpu_checks(THRESHOLDS)))
        play(seed, 80, reference, watch)
    assert ledger.active == expected.active
    assert ledger.changed == expected.changed


LINKS = (tuple(Link(n, True) for n in range(4)), tuple(Link(n, n > 0, crc_errors=5000) for n in range(4)))
PARTS: dict[str, dict[str, Sequence[Any]]] = {
    "latest": {**VALUES, "links": LINKS},
    "read": {**VALUES, "links": LINKS, "errors": ({}, {"power_mw": "unknown error"})},
}


def settled(spec: GpuCheckSpec, *phases: Sequence[GpuState]) -> set[tuple[type, str, int | None]]:
    """What a new check says of the last phase, each of them held until every change has lasted."""
    check, at, facts = gpu_check_registry.PerProductCheck(spec, THRESHOLDS), 0.0, list[LevelFact]()
    for states in phases:
        for _ in range(3):
            facts = check.judge(states, Moment(at, at))
            at += 1000.0
    return {(type(fact), fact.code, fact.component.index) for fact in facts}


def states_of(random: Random) -> list[GpuState]:
    values = [{name: random.choice(choices) for name, choices in PARTS["latest"].items()} for _ in range(GPUS)]
    whole = [GpuReading(index=i, **values[i]) for i in range(GPUS)]
    first = inventory(random)
    return [GpuState(*parts) for parts in zip(first.gpus, first.constants, whole, whole, strict=True)]


@pytest.mark.parametrize("spec", GPU_CHECKS, ids=lambda spec: spec.name)
def test_a_check_names_every_value_that_changes_its_answer(spec: GpuCheckSpec) -> None:
    assert values_that_matter(spec) <= {*spec.reads, *spec.counters}


def values_that_matter(spec: GpuCheckSpec) -> set[str]:
    """Those of which another value, of one GPU alone, makes the check say something else."""
    found: set[str] = set()
    for seed in range(SEEDS):
        states = states_of(history(seed))
        same = settled(spec, states, states)
        for part, field, value in others():
            if f"{part}.{field}" not in found:
                changed = replace(getattr(states[0], part), **{field: value})
                if settled(spec, states, [replace(states[0], **{part: changed}), *states[1:]]) != same:
                    found.add(f"{part}.{field}")
    return found


def others() -> Iterator[tuple[str, str, Any]]:
    for part, fields in PARTS.items():
        for field, choices in fields.items():
            for value in choices if field == "errors" else (*choices, None):
                yield part, field, value


def test_random_histories_raise_something_of_every_check() -> None:
    checks, raised = make_gpu_checks(THRESHOLDS), set()
    for seed in range(60):
        watch, ledger = watch_of(dict(checks))
        play(seed, 80, watch)
        raised |= {finding.check for finding in ledger.changed.values()}
    assert raised >= {spec.name for spec in GPU_CHECKS}


def test_while_no_value_changes_no_check_is_asked() -> None:
    counting = {name: Counting(check) for name, check in make_gpu_checks(THRESHOLDS).items()}
    watch, _ = watch_of(dict(counting))
    random = history(1)
    watch.take(inventory(random), Moment(0.0, 0.0))
    cheap = {"temperature_c": 40, "sm_clock_mhz": 1980, "power_mw": 90_000, "throttle_mask": 0}
    for second in range(1, 11):  # at first every check waits for a while before it calls a GPU well
        sweep = Sweep(second, 0.01, tuple(GpuReading(index=i, **cheap) for i in range(GPUS)))
        watch.take(sweep, Moment(700.0 * second, 700.0 * second))
    before = {name: check.asked for name, check in counting.items()}
    for second in range(20):
        sweep = Sweep(second, 0.01, tuple(GpuReading(index=i, **cheap) for i in range(GPUS)))
        watch.take(sweep, Moment(7000.0 + second, 7000.0 + second))
    assert {name: check.asked - before[name] for name, check in counting.items()} == dict.fromkeys(counting, 0)


def test_a_check_is_asked_anyway_after_a_while() -> None:
    counting = {name: Counting(check) for name, check in make_gpu_checks(THRESHOLDS).items()}
    watch, _ = watch_of(dict(counting))
    watch.take(inventory(history(1)), Moment(0.0, 0.0))
    sweep = Sweep(0.0, 0.01, tuple(GpuReading(index=i, temperature_c=40) for i in range(GPUS)))
    for at in (1.0, 5000.0, 10_000.0):
        watch.take(sweep, Moment(at, at))
    before = {name: check.asked for name, check in counting.items()}
    at = 10_000.0 + gpu_check_registry.ASKED_ANYWAY_S
    watch.take(sweep, Moment(at, at))
    assert {name: check.asked - before[name] for name, check in counting.items()} == dict.fromkeys(counting, 1)


class Failing:
    """Fails once, and then works."""

    def __init__(self) -> None:
        self.asked = 0

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:  # noqa: ARG002 - a check's signature
        self.asked += 1
        if self.asked == 1:
            raise ArithmeticError
        return []


def test_a_check_that_failed_is_asked_in_the_next_sweep() -> None:
    spec = GPU_CHECKS[0]._replace(make=lambda _limits: Failing())
    check = gpu_check_registry.PerProductCheck(spec, THRESHOLDS)
    states = [GpuState(Gpu(0, "GPU-0", "0000:10:00.0"), GpuConstants(index=0), *[GpuReading(index=0)] * 2)]
    assert check.may_differ(states, Moment(0.0, 0.0))
    with pytest.raises(ArithmeticError):
        check.judge(states, Moment(0.0, 0.0))
    assert check.may_differ(states, Moment(1.0, 1.0))
    check.judge(states, Moment(1.0, 1.0))
    assert not check.may_differ(states, Moment(2.0, 2.0))
