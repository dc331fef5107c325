"""The explicit list of checks over the GPUs of the node. Each is told the last known values of all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from healthd.checks import row_remap
from healthd.facts import Held, Moment
from healthd.gpus import GpuState
from healthd.thresholds import Thresholds


class GpuCheck(Protocol):
    """Pure but for what it remembers."""

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[Held]:
        """Everything that holds now. A level that is neither said again nor called unknown has ended."""
        ...


class GpuCheckSpec(NamedTuple):
    """A check, by the name it speaks as, and the section of the thresholds it is made from (None: it needs none)."""

    name: str
    make: Callable[[Callable[[str], Any]], GpuCheck]
    limits: type | None = None


GPU_CHECKS: tuple[GpuCheckSpec, ...] = (GpuCheckSpec(row_remap.CHECK, row_remap.RowRemapCheck),)


def make_checks(thresholds: Thresholds) -> dict[str, GpuCheck]:
    """All checks, by name. Each gets a function from a GPU's product name to its limits.

    Raises:
        ThresholdsError: the numbers of a section do not fit.
    """
    return {spec.name: spec.make(_limits(spec, thresholds)) for spec in GPU_CHECKS}


def _limits(spec: GpuCheckSpec, thresholds: Thresholds) -> Callable[[str], Any]:
    kind = spec.limits
    if kind is None:
        return lambda _product: None
    thresholds.section(spec.name, kind)  # a mistake shows now, not with the first GPU
    known: dict[str, Any] = {}

    def limits(product: str) -> Any:
        if product not in known:
            known[product] = thresholds.section(spec.name, kind, product)
        return known[product]

    return limits
