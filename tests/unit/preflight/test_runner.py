from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from preflight.checks.gpu_state import gpus_on_bus
from preflight.child import of_exception
from preflight.main import run_plan
from preflight.plan import LASTS_S, Spec, plan
from preflight.results import Done, Message, Now, Outcome, Result
from preflight.runner import _Child, _follow, run
from vocabulary.clock import SystemClock

SPEC = Spec("gpu_state", "driver", 0.3, ())


def silent(_: str) -> None:
    pass


def preflight(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "preflight", "run", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=os.environ | {"HEALTHD_NVML_LIBRARY": "", "CUDA_VISIBLE_DEVICES": ""} | env,
    )


def test_a_hang_is_a_result_that_says_where_and_takes_the_rest_of_its_part_along() -> None:
    results = run(
        plan("gate", inject=["memory_pattern:hang"], watchdogs={"memory_pattern": 0.2}), SystemClock(), silent
    )
    assert [result.outcome for result in results[-2:]] == [Outcome.HANG, Outcome.NOT_RUN]
    assert "last seen at: an injected hang" in results[-2].reason
    assert "--only matmul_repeat" in results[-1].reason


def test_the_process_of_a_hung_test_is_gone() -> None:
    with _Child(["gpu_state:hang"], SystemClock()) as child:
        results, alive = _follow(child, SPEC, 60.0, silent)
        pid = child._process.pid
    assert (results[0].outcome, alive) == (Outcome.HANG, False)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("fatal", "outcome"),
    [(signal.SIGSEGV, Outcome.FAIL), (signal.SIGBUS, Outcome.FAIL), (signal.SIGKILL, Outcome.ERROR)],
)
def test_a_crash_is_a_result(fatal: signal.Signals, outcome: Outcome) -> None:
    with _Child(["gpu_state:hang"], SystemClock()) as child:
        assert child.next_message(child.clock.monotonic() + 60) == Now("gpu_state", "starting")
        os.kill(child._process.pid, fatal)
        results, alive = _follow(child, SPEC, 60.0, silent)
    assert (results[0].outcome, alive) == (outcome, False)
    assert fatal.name in results[0].reason


def test_a_test_that_does_not_exist_is_no_pass() -> None:
    with _Child(["nonsense:"], SystemClock()) as child:
        results, alive = _follow(child, SPEC, 60.0, silent)
    assert alive
    assert (results[0].outcome, results[0].misconfigured) == (Outcome.NOT_RUN, True)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered"), Outcome.FAIL),
        (MemoryError("96 GiB"), Outcome.ERROR),
        (ValueError("something of ours"), Outcome.ERROR),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), Outcome.NOT_RUN),
    ],
)
def test_what_an_exception_says_of_the_machine(error: Exception, outcome: Outcome) -> None:
    assert of_exception("matmul_repeat", error).outcome is outcome


def test_messages_survive_the_pipe_whatever_they_hold() -> None:
    messages: list[Message] = [
        Now("a", "b\n\x00ü"),
        Done(Result(test="t", outcome=Outcome.FAIL, reason="x\ny"), last=True),
    ]
    decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
    for message in messages:
        line = msgspec.json.encode(message)
        assert b"\n" not in line
        assert decoder.decode(line) == message


@pytest.mark.torch
@pytest.mark.skipif(gpus_on_bus() > 0, reason="the golden document is that of a machine without a GPU")
def test_a_healthy_machine_passes_the_gate_and_prints_one_document(golden: Callable[[str, str], None]) -> None:
    pytest.importorskip("torch")
    done = preflight("-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(line.startswith("preflight: ") for line in done.stderr.splitlines())
    golden("preflight/pass.json", stable(done.stdout))


@pytest.mark.torch
def test_a_fault_fails_the_gate_with_its_place(golden: Callable[[str, str], None]) -> None:
    pytest.importorskip("torch")
    done = preflight("-o", "json", "--inject", "memory_pattern:bit_flip", "--only", "memory_pattern")
    assert done.returncode == 1
    golden("preflight/bit_flip.json", stable(done.stdout))


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


@pytest.mark.skipif(gpus_on_bus() > 0, reason="there is a GPU")
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


def stable(document: str) -> str:
    """The document without what differs from machine to machine."""
    document = re.sub(r'("(?:started_at|seconds|gigabytes_per_s|gigaflops)": )[0-9.e+-]+', r"\g<1>0", document)
    return re.sub(r'("node": )"[^"]*"', r'\1"this-node"', document)


@pytest.mark.parametrize(
    ("scenario", "verdict", "least", "most"), [("gpus 3", "pass", 2, 99), ("gpus 3\nlost 2", "fail", 1, 1)]
)
def test_a_longer_level_goes_round_after_round_until_one_is_no_pass(
    fake_nvml: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str, verdict: str, least: int, most: int
) -> None:
    (tmp_path / "scenario").write_text(f"{scenario}\n")
    monkeypatch.setenv("HEALTHD_NVML_LIBRARY", fake_nvml)
    monkeypatch.setenv("FAKE_NVML_SCENARIO", str(tmp_path / "scenario"))
    monkeypatch.setitem(LASTS_S, "standard", 3.0)
    document = run_plan(plan("standard", ["gpu_state"]), (), SystemClock())
    assert document.verdict.value == verdict
    assert least <= document.rounds <= most
