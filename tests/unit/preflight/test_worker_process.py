"""What reaches the parent from a test process, whatever the test, a library or the machine does to it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from preflight.execution.kernel_cache import choose_kernel_cache, copy_compiled_kernels
from preflight.execution.plan_runner import run_plan
from preflight.execution.progress_output import SilentProgress
from preflight.execution.worker_outcomes import WorkerExit, WorkerOutcome, build_worker_results
from preflight.execution.worker_process import TestProcess, end_processes
from preflight.execution.worker_requests import WorkerRequest, await_answers, conclude_request
from preflight.plan import Plan, Scope, Spec
from preflight.results import Outcome, Result
from preflight.worker_messages import RunRequest
from vocabulary.clock import SystemClock

CLOCK = SystemClock()
Told = Callable[..., tuple[Result, ...]]
FAILS = "Result(test='tells', outcome=Outcome.FAIL, reason='a wrong word')"
PASSES = "Result(test='tells', outcome=Outcome.PASS)"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Run a test of the node made of these lines, so many times: its results."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import preflight.checks\npreflight.checks.__path__.append({str(tmp_path)!r})\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))

    def results(*lines: str, watchdog_s: float = 60.0, times: int = 1) -> tuple[Result, ...]:
        source = "import os, signal\nfrom preflight.results import Figure, Outcome, Result\ndef check_tells(context):\n"
        (tmp_path / "tells.py").write_text(source + "".join(f"    {line}\n" for line in lines))
        spec = Spec("tells", Scope.NODE, watchdog_s, (), {"gate": 1.0})
        return run_plan(Plan("gate", (spec,) * times, {}), CLOCK, SilentProgress())

    return results


@pytest.fixture
def process() -> Iterator[TestProcess]:
    started = TestProcess("cpu:0", 1)
    yield started
    end_processes([started], CLOCK)


def outcomes(results: tuple[Result, ...]) -> list[Outcome]:
    return [result.outcome for result in results]


@pytest.mark.parametrize(
    "badly",
    [
        "evidence={'expected': None}",
        "evidence={'expected': object()}",
        "evidence=3",
        "remarks='one'",
        "figures=(Figure(name='rate', value='fast', unit='GB/s'),)",
        "figures=(1.5,)",
    ],
)
def test_a_fault_that_is_told_badly_is_found_all_the_same(told: Told, badly: str) -> None:
    failed = FAILS.replace("reason", f"{badly}, reason")
    found = told(f"yield {failed}", f"yield {PASSES}")
    assert outcomes(found) == [Outcome.FAIL, Outcome.ERROR]
    assert found[0].reason == "a wrong word"


def test_a_word_in_between_that_is_no_answer_leaves_no_pass(told: Told) -> None:
    found = told("os.write(3, b'NCCL WARN of ours\\n')", f"yield {PASSES}", times=2)
    assert outcomes(found) == [Outcome.ERROR, Outcome.ERROR]  # and nothing of the first is taken for the second's
    assert "the worker's answer cannot be read" in found[0].reason
    assert "NCCL WARN of ours" in found[0].reason


@pytest.mark.parametrize(
    ("then", "last"),
    [("signal.pause()", Outcome.HANG), ("os.kill(os.getpid(), 9)", Outcome.ERROR), ("os._exit(0)", Outcome.ERROR)],
)
def test_what_was_found_is_kept_whatever_the_test_does_then(told: Told, then: str, last: Outcome) -> None:
    found = told(f"yield {FAILS}", "context.note('on')", then, watchdog_s=1.0 if "pause" in then else 60.0)
    assert outcomes(found) == [Outcome.FAIL, last]


def test_a_process_that_is_gone_does_not_hang_because_another_holds_its_pipes(told: Told) -> None:
    (found,) = told("if os.fork() == 0: signal.pause()", "os._exit(7)", f"yield {PASSES}")
    assert found.outcome is Outcome.ERROR
    assert "ended with 7" in found.reason


def test_much_that_was_said_just_before_the_end_is_heard(told: Told) -> None:
    found = told(f"for _ in range(3000): yield {PASSES}", "os._exit(7)")
    assert len(found) == 3001


def test_a_signal_without_a_name_is_a_result(process: TestProcess) -> None:
    turn = WorkerRequest(process, RunRequest(test="gpu_state", level="gate", seconds=1.0, fault="hang"), 60.0, CLOCK)
    os.kill(process.pid, signal.SIGRTMIN + 6)
    await_answers([turn], CLOCK)
    (result,) = build_worker_results("gpu_state", conclude_request(turn, CLOCK))
    assert result.outcome is Outcome.ERROR
    assert f"was killed by signal {signal.SIGRTMIN + 6}" in result.reason


class StandsStill(SystemClock):
    """A clock that has gone on by a thousand seconds between two readings, as after a machine's pause."""

    def __init__(self, at: int) -> None:
        self._left = at

    def monotonic(self) -> float:
        self._left -= 1
        return super().monotonic() + (1000.0 if self._left < 0 else 0.0)


@pytest.mark.parametrize("at", range(2, 9))
def test_a_machine_that_stood_still_accuses_nobody(process: TestProcess, at: int) -> None:
    clock = StandsStill(at)
    turn = WorkerRequest(process, RunRequest(test="software", level="gate", seconds=1.0), 60.0, clock)
    await_answers([turn], clock)
    assert conclude_request(turn, clock).how is WorkerExit.DONE


def test_the_watchdog_of_a_test_begins_after_the_start_of_nccl(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("preflight.execution.worker_requests.JOIN_WATCHDOG_S", 60.0)
    joins = ("from preflight.worker_messages import JOINING", "import time")
    slow = told(*joins, "context.note(JOINING)", "time.sleep(2)", f"yield {PASSES}", watchdog_s=0.5)
    assert outcomes(slow) == [Outcome.PASS]
    hangs = told(
        *joins, "context.note(JOINING)", "context.note('on')", "signal.pause()", f"yield {PASSES}", watchdog_s=0.5
    )
    assert outcomes(hangs) == [Outcome.HANG]


def test_modules_are_not_looked_for_where_a_person_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "preflight" / "execution").mkdir(parents=True)
    for name in (
        "preflight/__init__",
        "preflight/execution/__init__",
        "preflight/execution/worker",
        "msgspec",
        "runpy",
        "pynvml",
    ):
        (tmp_path / f"{name}.py").write_text("import os\nos._exit(9)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    started = TestProcess("", 1)
    turn = WorkerRequest(started, RunRequest(test="gpu_state", level="gate", seconds=1.0), 60.0, CLOCK)
    await_answers([turn], CLOCK)
    found: WorkerOutcome = conclude_request(turn, CLOCK)
    end_processes([started], CLOCK)
    assert found.how is WorkerExit.DONE


def test_settings_of_a_job_do_not_change_what_is_tested(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    job = {
        "NCCL_SOCKET_IFNAME": "eth7",
        "GLOO_SOCKET_IFNAME": "eth7",
        "NCCL_DEBUG": "WARN",
        "NCCL_TOPO_FILE": "/topo.xml",
    }
    job |= dict.fromkeys(("NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_OF_A_LATER_RELEASE"), "0")
    job |= {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    names = "{name: value for name, value in os.environ.items() if 'NCCL' in name or 'GLOO' in name}"
    (found,) = told(f"yield {PASSES[:-1]}, evidence={names})")
    assert found.evidence == {
        "NCCL_NVLS_ENABLE": "2",
        "NCCL_SOCKET_IFNAME": "lo",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_DEBUG": "WARN",
        "NCCL_TOPO_FILE": "/topo.xml",
    }


def test_an_abort_after_a_long_stack_trace_is_judged_by_the_error_above_it(told: Told) -> None:
    (found,) = told(
        "import sys",
        "print('watchdog: CUDA error: uncorrectable ECC error encountered', file=sys.stderr)",
        "for n in range(200): print(f'frame #{n}: clone + 0x43 (in libc.so.6)', file=sys.stderr)",
        "sys.stderr.flush()",
        "os.abort()",
        f"yield {PASSES}",
    )
    assert found.outcome is Outcome.FAIL
    assert "uncorrectable ECC error" in found.reason


def test_an_error_that_an_earlier_test_survived_explains_no_later_end(told: Told) -> None:
    found = told(
        "import sys",
        "global times",
        "times = globals().get('times', 0) + 1",
        "if times == 1: os.write(2, b'NCCL WARN Cuda failure: hardware stack error\\n')",
        "if times == 2: os.abort()",
        f"yield {PASSES}",
        times=2,
    )
    assert outcomes(found) == [Outcome.PASS, Outcome.ERROR]


def test_root_keeps_compiled_kernels_with_healthds_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert choose_kernel_cache(tmp_path / "absent") == {}
    assert choose_kernel_cache(tmp_path) == {"TRITON_CACHE_DIR": f"{tmp_path}/preflight/triton"}
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert choose_kernel_cache(tmp_path) == {}


def test_kernels_compiled_ahead_are_copied_whole_where_the_cache_lacks_them(tmp_path: Path) -> None:
    compiled, cache = tmp_path / "compiled", tmp_path / "run" / "cache"
    for name in ("AAAA", "BBBB"):
        (compiled / name).mkdir(parents=True)
        (compiled / name / "kernel.cubin").write_text("ahead")
    (compiled / "note.txt").write_text("no kernel")
    (cache / "BBBB").mkdir(parents=True)
    environment = {"HEALTHD_PREFLIGHT_KERNELS": str(compiled), "TRITON_CACHE_DIR": str(cache)}
    for _ in range(2):
        copy_compiled_kernels(environment)
        assert sorted(path.name for path in cache.iterdir()) == ["AAAA", "BBBB"]
    assert (cache / "AAAA" / "kernel.cubin").read_text() == "ahead"
    assert list((cache / "BBBB").iterdir()) == []


@pytest.mark.parametrize("wrong", [{"HEALTHD_PREFLIGHT_KERNELS": "/absent"}, {"TRITON_CACHE_DIR": "/proc/x"}])
def test_kernels_that_cannot_be_copied_stop_no_test(tmp_path: Path, wrong: dict[str, str]) -> None:
    (tmp_path / "AAAA").mkdir()
    copy_compiled_kernels(
        {"HEALTHD_PREFLIGHT_KERNELS": str(tmp_path), "TRITON_CACHE_DIR": str(tmp_path / "to")} | wrong
    )
