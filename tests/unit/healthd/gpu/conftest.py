"""A node's GPUs as the samples show them, and a clock that moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from healthd.findings.facts import LevelFact, Moment, Raise, Unknown
from healthd.findings.gpu_state import GpuState
from healthd.gpu_monitoring.gpu_check_registry import make_gpu_checks
from healthd.samples.nvml import GpuConstants, GpuReading
from healthd.thresholds import load_thresholds
from vocabulary.messages.wire import Gpu

PRODUCT = "NVIDIA H100 80GB HBM3"


class Node:
    """One check of the shipped list, with its shipped numbers; `say` is what it says of readings at a time."""

    def __init__(self, check: str, site: dict[str, Any] | None = None) -> None:
        self.check = make_gpu_checks(load_thresholds(site))[check]

    def say(self, at: float, *gpus: GpuState) -> dict[str, LevelFact]:
        """By ``code@index``."""
        return by_name(self.check.judge(gpus, Moment(at, at)))

    def raised(self, at: float, *gpus: GpuState) -> set[str]:
        return {name for name, fact in self.say(at, *gpus).items() if isinstance(fact, Raise)}

    def unknown(self, at: float, *gpus: GpuState) -> set[str]:
        return {name for name, fact in self.say(at, *gpus).items() if isinstance(fact, Unknown)}


def by_name(facts: Sequence[LevelFact]) -> dict[str, LevelFact]:
    named = {f"{fact.code}@{fact.component.index}": fact for fact in facts}
    assert len(named) == len(facts), "nothing is said twice"
    return named


def build(index: int = 0, constants: dict[str, Any] | None = None, product: str = PRODUCT, **values: Any) -> GpuState:
    reading = GpuReading(index=index, **values)
    gpu = Gpu(index=index, uuid=f"GPU-{index}", pci=f"0000:1{index}:00.0", name=product)
    return GpuState(gpu, GpuConstants(index=index, **(constants or {})), reading, reading)


@pytest.fixture
def gpu() -> Callable[..., GpuState]:
    """``gpu(3, {"slowdown_c": 90}, temperature_c=88)``: GPU 3 with these constants and these values just read."""
    return build


@pytest.fixture
def node() -> type[Node]:
    """``node("temperature")``: that check; a site's changes to the numbers may follow."""
    return Node
