from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from preflight.execution.progress_output import SilentProgress
from preflight.execution.qualification import qualify_node
from preflight.host.nvml_library import count_gpus
from preflight.plan import build_plan
from preflight.results import Verdict
from vocabulary.clock import SystemClock

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
@pytest.mark.skipif(count_gpus() > 0, reason="there is a GPU")
def test_a_healthy_machine_passes_the_gate_and_prints_one_document() -> None:
    done = preflight("-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(line.startswith("preflight: ") for line in done.stderr.splitlines())
    document = json.loads(done.stdout)
    assert (document["version"], document["verdict"], document["complete"]) == (2, "pass", True)
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
    ("gpus 3", 0, ""),
    ("gpus 3\nerror_fields 2\nerror_pending 13", 0, ""),  # a driver that is older than the field number
    ("gpus 3\nerror_fields 999", 3, "could not read recovery action (Unknown Error)"),
    ("gpus 3\npending.1 1", 1, "gpu_state on GPU 1: a row remap is pending; reset the GPU"),
    ("gpus 3\nfailure.0 1", 1, "gpu_state on GPU 0: a memory row could not be remapped"),
    (
        "gpus 3\nrecovery_action.2 2",
        1,
        "gpu_state on GPU 2: the driver asks for a reboot of the node (recovery action 2)",
    ),
    ("gpus 3\nlost 2", 1, "gpu_state on GPU 2: the driver has lost the GPU"),
    ("gpus 3\nhang 1", 1, "did not end within 2 s; last seen at: GPU 1: handle"),
    ("hang init", 1, "did not end within 2 s; last seen at: nvmlInit"),
    ("fail 999", 3, "the driver does not start: Unknown Error"),
    ("gpus 0", 3, "the driver is loaded but sees no GPU"),
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
    limit = 2 if "hang" in scenario else 60
    env = {"HEALTHD_NVML_LIBRARY": fake_nvml, "FAKE_NVML_SCENARIO": str(tmp_path / "scenario")}
    done = preflight("--only", "gpu_state", "--watchdog", f"gpu_state={limit}", "-o", "json", **env)
    assert done.returncode == code, done.stdout + done.stderr
    assert says in json.loads(done.stdout)["reason"]


@pytest.mark.parametrize(
    ("allowed", "code", "says"), [("", 3, "the machine has 4 GPUs, but the driver shows 3"), ("gpus_missing", 0, "")]
)
def test_a_gpu_that_the_driver_does_not_show_is_no_pass(
    fake_nvml: str, tmp_path: Path, allowed: str, code: int, says: str
) -> None:
    (tmp_path / "scenario").write_text("gpus 3\n")
    patch = "import preflight.checks.gpu_state\npreflight.checks.gpu_state.count_own_gpus = lambda: 4\n"
    (tmp_path / "sitecustomize.py").write_text(patch)
    env = {"HEALTHD_NVML_LIBRARY": fake_nvml, "FAKE_NVML_SCENARIO": str(tmp_path / "scenario")}
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = preflight("--only", "gpu_state", "-o", "json", **env, PYTHONPATH=path, HEALTHD_PREFLIGHT_ALLOW=allowed)
    assert done.returncode == code, done.stdout + done.stderr
    assert says in json.loads(done.stdout)["reason"]


def test_a_gpu_that_somebody_computes_on_is_not_tested(fake_nvml: str, tmp_path: Path) -> None:
    (tmp_path / "scenario").write_text(f"gpus 2\nprocess.1 {os.getpid()} 1048576\n")
    env = {"HEALTHD_NVML_LIBRARY": fake_nvml, "FAKE_NVML_SCENARIO": str(tmp_path / "scenario")}
    done = preflight("--only", "memory_pattern", "-o", "json", **env)
    document = json.loads(done.stdout)
    assert (done.returncode, document["verdict"]) == (2, "misconfigured")
    assert f"GPU 1 is busy with process {os.getpid()} (" in document["reason"]
    assert document["devices"] == []


@pytest.mark.parametrize("scenario", ["gpus 2\nhang 1", "hang init"])
def test_a_driver_that_does_not_say_which_gpus_are_here_fails_the_devices(
    fake_nvml: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str
) -> None:
    (tmp_path / "scenario").write_text(f"{scenario}\n")
    monkeypatch.setenv("HEALTHD_NVML_LIBRARY", fake_nvml)
    monkeypatch.setenv("FAKE_NVML_SCENARIO", str(tmp_path / "scenario"))
    monkeypatch.setattr("preflight.execution.worker_pool.LOOK_WATCHDOG_S", 2.0)
    document = qualify_node(build_plan("gate", ["memory_pattern"]), "n1", (), tmp_path, SystemClock(), SilentProgress())
    assert document.verdict is Verdict.FAIL
    assert "the driver cannot list the GPUs: did not end within 2 s; last seen at: " in document.reason


@pytest.mark.skipif(count_gpus() > 0, reason="there is a GPU")
def test_a_machine_where_nothing_applies_is_no_pass() -> None:
    done = preflight("--only", "gpu_state")
    assert done.returncode == 3
    assert "nothing is qualified" in done.stdout


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
