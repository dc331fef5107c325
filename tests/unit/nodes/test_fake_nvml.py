"""The fake driver is asked through nvidia-ml-py itself, in a process of its own: so a wrong layout shows here."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BUILD = Path(__file__).parents[2] / "nodes" / "fake_nvml" / "build.py"
ASK = """
import ctypes, json, sys
import pynvml as n
n.nvmlLib = ctypes.CDLL(sys.argv[1])
n.nvmlInit()
d = n.nvmlDeviceGetHandleByIndex(3)
try:
    answer = eval(sys.argv[2])
except n.NVMLError as error:
    answer = type(error).__name__
print(json.dumps(answer))
"""


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModuleType, Path]:
    """The builder, and the library."""
    spec = importlib.util.spec_from_file_location("fake_nvml_build", BUILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, module.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def ask(fake: tuple[ModuleType, Path], tmp_path: Path) -> Callable[..., Any]:
    """What GPU 3 answers to an expression over nvidia-ml-py (`n`) and its handle (`d`)."""
    builder, library = fake

    def run(expression: str, *lines: str, timeout_s: float = 30.0) -> Any:
        builder.write_scenario(tmp_path / "scenario", [*builder.preset("h100x8"), *lines])
        environment = os.environ | {"FAKE_NVML_SCENARIO": str(tmp_path / "scenario")}
        command = [sys.executable, "-c", ASK, str(library), expression]
        done = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=timeout_s)
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize(
    ("expression", "lines", "answer"),
    [
        ("n.nvmlDeviceGetTemperature(d, 0)", ["temperature 50", "temperature.3 77"], 77),
        ("n.nvmlDeviceGetMarginTemperature(d)", ["margin.3 -4"], -4),
        ("n.nvmlDeviceGetName(d)", [], "NVIDIA H100 80GB HBM3"),
        ("n.nvmlDeviceGetTotalEnergyConsumption(d)", ["energy_mj 9000000000000"], 9_000_000_000_000),
        ("n.nvmlDeviceGetMemoryInfo(d, version=n.nvmlMemory_v2).used", ["memory_used.3 5"], 5),
        ("n.nvmlDeviceGetEccMode(d)", ["ecc.3 0"], [0, 0]),
        ("n.nvmlDeviceGetNvLinkState(d, 5)", ["nvlink_active.5.3 0"], 0),
        ("n.nvmlDeviceGetNvLinkState(d, 6)", ["nvlink_active.5.3 0"], 1),
        ("n.nvmlDeviceGetNvLinkState(d, 18)", [], "NVMLError_InvalidArgument"),
        ("[p.pid for p in n.nvmlDeviceGetComputeRunningProcesses_v3(d)]", ["process.3 7 1", "process.3 8 2"], [7, 8]),
        ("n.nvmlDeviceGetViolationStatus(d, 1).violationTime", ["throttled_thermal_ns 12"], 12),
        ("n.nvmlDeviceGetFieldValues(d, [(163, 2)])[0].value.ullVal", ["nvlink_crc.2.3 4"], 4),
        ("n.nvmlDeviceGetRowRemapperHistogram(d).low", ["histogram 1 2 3 4 5"], 4),
        ("n.nvmlDeviceGetRetiredPagesPendingStatus(d)", [], "NVMLError_NotSupported"),
        ("n.nvmlDeviceGetTemperature(d, 0)", ["error_temperature.3 999"], "NVMLError_Unknown"),
        ("n.nvmlDeviceGetPowerUsage(d)", ["error_temperature.3 999"], 70000),
        ("n.nvmlDeviceGetCount()", ["count 7"], 7),
    ],
)
def test_what_the_scenario_says_is_what_nvidias_own_module_reads(
    ask: Callable[..., Any], expression: str, lines: list[str], answer: object
) -> None:
    assert ask(expression, *lines) == answer


def test_one_call_hangs_and_the_others_do_not(ask: Callable[..., Any]) -> None:
    assert ask("n.nvmlDeviceGetPowerUsage(d)", "hang 3 temperature") == 70000
    with pytest.raises(subprocess.TimeoutExpired):
        ask("n.nvmlDeviceGetTemperature(d, 0)", "hang 3 temperature", timeout_s=2.0)


def test_every_product_can_be_loaded(fake: tuple[ModuleType, Path]) -> None:
    for product in ("h100x8", "h200x8", "b200x8", "a100x8", "gb200x4"):
        keys = [line.split()[0] for line in fake[0].preset(product) if not line.startswith("#")]
        assert len(keys) == len(set(keys)), product
