"""The explicit list of checks over the node's GPUs. Each gets the last known values of all GPUs.

Most sweeps change little, and rejudging everything cost most of the daemon's time. So a check names the values that it
reads, and runs only when one of them changed, or while it waits for a change to last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from healthd.checks import (
    ecc_checks,
    gpu_activity_checks,
    gpu_clock_checks,
    gpu_identity_checks,
    nvlink_checks,
    nvlink_fabric_checks,
    pcie_link_checks,
    power_checks,
    recovery_action_checks,
    retired_page_checks,
    row_remap_checks,
    temperature_checks,
    throttle_checks,
)
from healthd.findings.facts import LevelFact, Moment
from healthd.findings.gpu_state import GpuState
from healthd.findings.hysteresis import Dwell
from healthd.thresholds import Thresholds

ASKED_ANYWAY_S = 60.0  # limits how long a value missing from a check's `reads` stays unseen


class GpuCheck(Protocol):
    """A check, stateless but for its history."""

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        """Return all facts that hold now. A fact that is neither repeated nor marked unknown has ended."""


class GpuCheckByProduct(GpuCheck, Protocol):
    """A wired check, which also knows when it need not run."""

    def may_differ(self, gpus: Sequence[GpuState], now: Moment) -> bool:
        """Return whether `judge` could return something new."""


class GpuCheckSpec(NamedTuple):
    """A check and its reporting name, which is also its section of the thresholds, read as `limits`.

    `reads` are the attributes of a `GpuState` that it compares, besides `gpu` and `constants`. Without any it runs in
    every sweep. `counters` are those of which each reading counts, even if the value is the same.
    """

    name: str
    make: Callable[[Any], GpuCheck]
    limits: type
    reads: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()


_FABRIC = ("latest.fabric_state", "latest.fabric_status", "latest.fabric_health_mask")
_RETIRED = ("retired_pages_corrected", "retired_pages_uncorrected", "retirement_pending")
_ROWS = ("remap_pending", "remap_failed", "remap_histogram", "rows_remapped_uncorrected")

GPU_CHECKS: tuple[GpuCheckSpec, ...] = (
    GpuCheckSpec(
        gpu_activity_checks.CHECK,
        gpu_activity_checks.GpuActivityCheck,
        gpu_activity_checks.Limits,
        ("latest.gpu_percent", "latest.memory_percent", "latest.processes"),
    ),
    GpuCheckSpec(
        gpu_clock_checks.CHECK,
        gpu_clock_checks.GpuClockCheck,
        gpu_clock_checks.Limits,
        ("latest.sm_clock_mhz", "latest.gpu_percent", "latest.throttle_mask", "latest.power_mw"),
    ),
    GpuCheckSpec(
        ecc_checks.CHECK,
        ecc_checks.EccCheck,
        ecc_checks.Limits,
        ("latest.ecc_uncorrected", "latest.ecc_uncorrected_aggregate", "latest.sram_threshold_exceeded"),
        ("read.ecc_corrected",),
    ),
    GpuCheckSpec(nvlink_fabric_checks.CHECK, nvlink_fabric_checks.FabricCheck, nvlink_fabric_checks.Limits, _FABRIC),
    GpuCheckSpec(
        gpu_identity_checks.CHECK,
        gpu_identity_checks.GpuIdentityCheck,
        gpu_identity_checks.Limits,
        ("latest.persistence",),
    ),
    GpuCheckSpec(
        nvlink_checks.CHECK, nvlink_checks.NvlinkCheck, nvlink_checks.Limits, ("latest.links",), ("read.links",)
    ),
    GpuCheckSpec(
        pcie_link_checks.CHECK,
        pcie_link_checks.PcieLinkCheck,
        pcie_link_checks.Limits,
        ("latest.pcie_width", "latest.pcie_generation", "latest.gpu_percent", "latest.throttle_mask"),
        ("read.pcie_replays",),
    ),
    GpuCheckSpec(
        power_checks.CHECK,
        power_checks.PowerCheck,
        power_checks.Limits,
        ("latest.power_mw", "latest.power_limit_mw", "latest.tensor_active_percent", "read.power_mw", "read.errors"),
    ),
    GpuCheckSpec(
        recovery_action_checks.CHECK,
        recovery_action_checks.RecoveryActionCheck,
        recovery_action_checks.Limits,
        ("latest.recovery_action",),
    ),
    GpuCheckSpec(
        retired_page_checks.CHECK,
        retired_page_checks.RetiredPagesCheck,
        retired_page_checks.Limits,
        tuple(f"latest.{name}" for name in _RETIRED),
    ),
    GpuCheckSpec(
        row_remap_checks.CHECK,
        row_remap_checks.RowRemapCheck,
        row_remap_checks.Limits,
        tuple(f"latest.{name}" for name in _ROWS),
    ),
    GpuCheckSpec(
        temperature_checks.CHECK,
        temperature_checks.TemperatureCheck,
        temperature_checks.Limits,
        ("latest.temperature_c", "latest.temperature_margin_c", "latest.memory_temperature_c"),
    ),
    GpuCheckSpec(
        throttle_checks.CHECK,
        throttle_checks.ThrottleCheck,
        throttle_checks.Limits,
        ("latest.throttle_mask",),
        ("read.throttled_thermal_ns",),
    ),
)


def make_gpu_checks(thresholds: Thresholds) -> dict[str, GpuCheckByProduct]:
    """Return all checks by name.

    Raises:
        ThresholdsError: the numbers of a section do not fit.
    """
    return {spec.name: PerProductCheck(spec, thresholds) for spec in GPU_CHECKS}


class PerProductCheck:
    """One check per product name, with that product's limits: only GPUs of one kind are siblings.

    Raises:
        ThresholdsError: the numbers of a section do not fit.
    """

    def __init__(self, spec: GpuCheckSpec, thresholds: Thresholds) -> None:
        self._spec, self._thresholds = spec, thresholds
        self._inputs = attrgetter("gpu", "constants", *spec.reads)
        self._counters = tuple(attrgetter(name) for name in spec.counters)
        self._judged: list[Any] | None = None  # the inputs of the last answer; None: run
        self._due_at = 0.0  # monotonic; when to run although no input has changed
        self._dwells: list[Dwell] = []
        self._checks = {"": self._make("")}  # an invalid section fails now, not with the first GPU

    def may_differ(self, gpus: Sequence[GpuState], now: Moment) -> bool:
        """Return whether `judge` could return something new."""
        return (
            not self._spec.reads
            or self._judged is None
            or now.monotonic >= self._due_at
            or any(counter(state) is not None for counter in self._counters for state in gpus)
            or self._judged != [self._inputs(state) for state in gpus]
        )

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        """Return all facts that hold now. A fact that is neither repeated nor marked unknown has ended."""
        self._judged = None
        facts: list[LevelFact] = []
        for product in sorted({state.gpu.name for state in gpus}):
            check = self._checks.get(product) or self._checks.setdefault(product, self._make(product))
            facts += check.judge([state for state in gpus if state.gpu.name == product], now)
        self._judged = [self._inputs(state) for state in gpus]
        self._due_at = min(now.monotonic + ASKED_ANYWAY_S, *(dwell.due_at for dwell in self._dwells), math.inf)
        return facts

    def _make(self, product: str) -> GpuCheck:
        check = self._spec.make(self._thresholds.section(self._spec.name, self._spec.limits, product))
        self._dwells += [each for each in vars(check).values() if isinstance(each, Dwell)]  # in any attribute
        return check
