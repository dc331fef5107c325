"""The checks on a simulated `cuda`, with sizes that a processor does in a moment."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator

import pytest

from preflight.check_context import Context, Device
from preflight.checks.load_products import LoadSize
from preflight.plan import SPECS, Scope
from preflight.results import Result
from tests.unit.preflight.simulated_cuda import PRODUCT

DEVICE = Device(
    name="cuda:1",
    torch_name="cuda:1",
    index=1,
    label=PRODUCT,
    uuid="GPU-1",
    product=PRODUCT,
    memory_bytes=16 << 20,
)
SMALL = {
    "matmul_schedule": {"GPU_SIZE": 128, "GPU_SIZE_OF_UNITS": 128, "GPU_SIZE_OF_SLOW": 128, "GPU_SIZE_MIN": 128},
    "matmul_repeat": {"GPU_REPEATS": 3},
    "special_functions": {"GPU_SIZE": 128, "GPU_SIZE_MIN": 128, "GPU_REPEATS": 3},
    "sustained_load": {"GPU_SIZE": LoadSize("bfloat16", 256, 8)},
    "memory_retention": {"GPU_SIZE": 128, "GPU_COPY_BYTES": 1 << 20},
    "row_hammer": {"HAMMER_S": 0.0, "GPU_TURNS": 2},
    "cache_pattern": {"GPU_REPEATS": 3},
    "host_link": {"GPU_BYTES": 1 << 20, "PATIENCE_S": 0.0},
}  # what a processor does in a moment; the branches stay
COMPARED = {"slow", "slow_copy", "slow_one", "one_device"}  # found by comparison with other devices only
DEVICE_TESTS = [spec for spec in SPECS.values() if spec.scope is Scope.DEVICE]
FAULTS = [(spec.test, fault) for spec in DEVICE_TESTS for fault in spec.faults if fault not in COMPARED]


def shrink_checks(patch: pytest.MonkeyPatch) -> None:
    """Give the checks the sizes of `SMALL`."""
    for module, sizes in SMALL.items():
        for name, value in sizes.items():
            patch.setattr(f"preflight.checks.{module}.{name}", value)


def run_check(test: str, fault: str = "", level: str = "gate") -> list[Result]:
    """The results of one test of one device."""
    module = importlib.import_module(f"preflight.checks.{test}")
    check: Callable[[Context], Iterator[Result]] = getattr(module, f"check_{test}")
    return list(check(build_context(fault, level)))


def build_context(fault: str = "", level: str = "gate") -> Context:
    return Context(device=DEVICE, devices=(DEVICE,), level=level, seconds=0.2, fault=fault, note=lambda _text: None)
