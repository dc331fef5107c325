from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from preflight.driver import gpus_here

QUIET = {"HEALTHD_NVML_LIBRARY": "", "CUDA_VISIBLE_DEVICES": ""}


def preflight(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "preflight", "run", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=os.environ | QUIET | env,
    )


CORE = ("--only", "gpu_state", "--only", "memory_pattern")


@pytest.mark.torch
@pytest.mark.skipif(gpus_here() > 0, reason="there is a GPU")
def test_a_healthy_machine_passes_and_prints_one_document() -> None:
    done = preflight("-o", "json", *CORE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(line.startswith("preflight: ") for line in done.stderr.splitlines())
    document = json.loads(done.stdout)
    assert (document["version"], document["verdict"], document["complete"]) == (2, "pass", False)
    assert [device["name"] for device in document["devices"]] == ["cpu:0", "cpu:1"]
    assert document["software"]["torch"]


@pytest.mark.torch
def test_a_fault_fails_the_device_it_was_committed_on() -> None:
    done = preflight("-o", "json", "--inject", "memory_pattern:bit_flip@cpu:0", *CORE)
    document = json.loads(done.stdout)
    assert (done.returncode, document["injected"]) == (1, ["memory_pattern:bit_flip@cpu:0"])
    assert {r["device"]: r["outcome"] for r in document["results"][-2:]} == {"cpu:0": "fail", "cpu:1": "pass"}
    assert document["reason"].startswith("memory_pattern on cpu:0: ")


def test_without_torch_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    done = preflight("-o", "json", "--only", "matmul_repeat", PYTHONPATH=str(tmp_path))
    document = json.loads(done.stdout)
    assert (done.returncode, document["verdict"], document["complete"]) == (2, "misconfigured", False)
    assert "pip install 'gpu-healthd[preflight]'" in document["reason"]


def test_a_configured_library_that_is_missing_must_be_put_right() -> None:
    done = preflight("--only", "gpu_state", HEALTHD_NVML_LIBRARY="/nowhere/libnvidia-ml.so.1")
    assert done.returncode == 2
    assert "HEALTHD_NVML_LIBRARY names a library that cannot be loaded: /nowhere" in done.stdout


DRIVER_SAYS = [
    ("gpus 3", 0, "PASS"),
    ("gpus 3\npending.1 1", 1, "gpu_state on GPU 1: a row remap waits for a GPU reset"),
    ("gpus 3\nfailure.0 1", 1, "gpu_state on GPU 0: a row could not be remapped"),
    ("gpus 3\nrecovery_action.2 2", 1, "gpu_state on GPU 2: the driver asks for recovery action 2 (reboot the node)"),
    ("gpus 3\nlost 2", 1, "gpu_state on GPU 2: the driver has lost it"),
    ("gpus 3\nhang 1", 1, "no end within 0.5 s; last seen at: GPU 1: handle"),
    ("hang init", 1, "no end within 0.5 s; last seen at: nvmlInit"),
    ("fail 999", 3, "the driver does not start: Unknown Error"),
    ("gpus 0", 3, "the driver is here but sees no GPU"),
]


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A driver library that says what a scenario file tells it to, built from C."""
    nodes = Path(__file__).parents[2] / "nodes" / "fake_nvml" / "build.py"
    command = [sys.executable, str(nodes), str(tmp_path_factory.mktemp("nvml"))]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(("scenario", "code", "says"), DRIVER_SAYS)
def test_what_the_driver_says_of_its_gpus(fake_nvml: str, tmp_path: Path, scenario: str, code: int, says: str) -> None:
    (tmp_path / "scenario").write_text(f"{scenario}\n")
    limit = 0.5 if "hang" in scenario else 60
    env = {"HEALTHD_NVML_LIBRARY": fake_nvml, "FAKE_NVML_SCENARIO": str(tmp_path / "scenario")}
    done = preflight("--only", "gpu_state", "--watchdog", f"gpu_state={limit}", **env)
    assert done.returncode == code, done.stdout + done.stderr
    assert says in done.stdout


@pytest.mark.skipif(gpus_here() > 0, reason="there is a GPU")
def test_a_machine_where_nothing_applies_is_no_pass() -> None:
    done = preflight("--only", "gpu_state")
    assert done.returncode == 3
    assert "nothing is proven" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--level", "x"],
        ["--only", "x"],
        ["--inject", "x"],
        ["--watchdog", "gpu_state=-1"],
        ["--watchdog", "gpu_state=nan"],
    ],
)
def test_wrong_usage_is_misconfigured_and_prints_no_document(arguments: list[str]) -> None:
    done = preflight(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Error: " in done.stderr
