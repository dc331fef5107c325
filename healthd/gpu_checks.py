"""The explicit list of checks over the GPUs of the node. Each is told the last known values of all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from healthd.checks import (
    clocks,
    ecc,
    fabric,
    gpu_identity,
    nvlink,
    pcie_link,
    power,
    recovery_action,
    retired_pages,
    row_remap,
    temperature,
    throttle,
)
from healthd.facts import Held, Moment
from healthd.gpus import GpuState
from healthd.thresholds import Thresholds


class GpuCheck(Protocol):
    """Pure but for what it remembers."""

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[Held]:
        """Everything that holds now. A level that is neither said again nor called unknown has ended."""
        ...


class GpuCheckSpec(NamedTuple):
    """A check, by the name it speaks as. It is made from the section of that name, read as `limits`."""

    name: str
    make: Callable[[Any], GpuCheck]
    limits: type


GPU_CHECKS: tuple[GpuCheckSpec, ...] = (
    GpuCheckSpec(clocks.CHECK, clocks.ClocksCheck, clocks.Limits),
    GpuCheckSpec(ecc.CHECK, ecc.EccCheck, ecc.Limits),
    GpuCheckSpec(fabric.CHECK, fabric.FabricCheck, fabric.Limits),
    GpuCheckSpec(gpu_identity.CHECK, gpu_identity.GpuIdentityCheck, gpu_identity.Limits),
    GpuCheckSpec(nvlink.CHECK, nvlink.NvlinkCheck, nvlink.Limits),
    GpuCheckSpec(pcie_link.CHECK, pcie_link.PcieLinkCheck, pcie_link.Limits),
    GpuCheckSpec(power.CHECK, power.PowerCheck, power.Limits),
    GpuCheckSpec(recovery_action.CHECK, recovery_action.RecoveryActionCheck, recovery_action.Limits),
    GpuCheckSpec(retired_pages.CHECK, retired_pages.RetiredPagesCheck, retired_pages.Limits),
    GpuCheckSpec(row_remap.CHECK, row_remap.RowRemapCheck, row_remap.Limits),
    GpuCheckSpec(temperature.CHECK, temperature.TemperatureCheck, temperature.Limits),
    GpuCheckSpec(throttle.CHECK, throttle.ThrottleCheck, throttle.Limits),
)


def make_checks(thresholds: Thresholds) -> dict[str, GpuCheck]:
    """All checks, by name.

    Raises:
        ThresholdsError: the numbers of a section do not fit.
    """
    return {spec.name: _ByProduct(spec, thresholds) for spec in GPU_CHECKS}


class _ByProduct:
    """One check for each product name, with that product's numbers: only GPUs of one kind are siblings."""

    def __init__(self, spec: GpuCheckSpec, thresholds: Thresholds) -> None:
        self._spec, self._thresholds = spec, thresholds
        self._checks = {"": self._make("")}  # a mistake in the numbers shows now, not with the first GPU

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[Held]:
        facts: list[Held] = []
        for product in sorted({state.gpu.name for state in gpus}):
            check = self._checks.get(product) or self._checks.setdefault(product, self._make(product))
            facts += check.judge([state for state in gpus if state.gpu.name == product], now)
        return facts

    def _make(self, product: str) -> GpuCheck:
        return self._spec.make(self._thresholds.section(self._spec.name, self._spec.limits, product))
