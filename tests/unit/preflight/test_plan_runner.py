from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from preflight.execution.plan_runner import PlanRunner, run_plan
from preflight.execution.progress_output import SilentProgress
from preflight.execution.worker import build_exception_result
from preflight.execution.worker_outcomes import build_worker_results
from preflight.execution.worker_process import TestProcess, end_processes
from preflight.execution.worker_requests import WorkerRequest, await_answers, conclude_request
from preflight.plan import Injection, Plan, PlanError, Scope, Spec
from preflight.results import Outcome, Result
from preflight.worker_messages import (
    Answer,
    AssignRequest,
    DeviceAssignment,
    DeviceRefused,
    InventoryRequest,
    ProgressUpdate,
    ResultMessage,
    RunRequest,
)
from vocabulary.clock import SystemClock

CLOCK = SystemClock()
DO = RunRequest(test="gpu_state", level="gate", seconds=1.0)


@pytest.fixture
def processes() -> Iterator[Callable[[], TestProcess]]:
    started: list[TestProcess] = []

    def start() -> TestProcess:
        started.append(TestProcess("cpu:0", 1))
        return started[-1]

    yield start
    end_processes(started, CLOCK)


def planned(*tests: tuple[str, Scope], watchdog_s: float = 60.0, **faults: str) -> Plan:
    specs = tuple(Spec(test, scope, watchdog_s, (), {"gate": 1.0}) for test, scope in tests)
    return Plan("gate", specs, {test: Injection(*fault.split("@")) for test, fault in faults.items()})


def told(results: tuple[Result, ...]) -> list[tuple[str, str, str]]:
    return [(result.test, result.device, result.outcome.value) for result in results]


def test_a_hang_is_a_result_that_says_where_and_its_process_is_gone(processes: Callable[[], TestProcess]) -> None:
    process = processes()
    turn = WorkerRequest(process, msgspec.structs.replace(DO, fault="hang"), 0.3, CLOCK)
    await_answers([turn], CLOCK)
    (result,) = build_worker_results("gpu_state", conclude_request(turn, CLOCK))
    assert (result.outcome, result.device) == (Outcome.HANG, "cpu:0")
    assert result.reason == "did not end within 0.3 s; last seen at: an injected hang"
    end_processes([process], CLOCK)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@pytest.mark.parametrize(
    ("fatal", "outcome"),
    [(signal.SIGSEGV, Outcome.FAIL), (signal.SIGBUS, Outcome.FAIL), (signal.SIGKILL, Outcome.ERROR)],
)
def test_a_crash_is_a_result(processes: Callable[[], TestProcess], fatal: signal.Signals, outcome: Outcome) -> None:
    process = processes()
    turn = WorkerRequest(process, msgspec.structs.replace(DO, fault="hang"), 60.0, CLOCK)
    os.kill(process.pid, fatal)
    await_answers([turn], CLOCK)
    (result,) = build_worker_results("gpu_state", conclude_request(turn, CLOCK))
    assert result.outcome is outcome
    assert f"was killed by {fatal.name} at: starting" in result.reason


def test_a_process_that_is_gone_already_is_heard_out_at_once(processes: Callable[[], TestProcess]) -> None:
    process = processes()
    os.kill(process.pid, signal.SIGKILL)
    for _ in range(2):
        turn = WorkerRequest(process, InventoryRequest(), 60.0, CLOCK)
        await_answers([turn], CLOCK)
        assert turn.gone


def test_a_stopped_process_can_be_ended(processes: Callable[[], TestProcess]) -> None:
    process = processes()
    os.kill(process.pid, signal.SIGSTOP)
    turn = WorkerRequest(process, InventoryRequest(), 0.2, CLOCK)
    await_answers([turn], CLOCK)
    assert turn.hung
    end_processes([process], CLOCK)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_what_cannot_die_is_given_up(processes: Callable[[], TestProcess]) -> None:
    process = processes()
    os.kill(process.pid, signal.SIGSTOP)
    process.reap(0.05)  # as one stuck in the driver: it was told to die, and does not
    assert process.code() == -signal.SIGKILL
    os.kill(process.pid, signal.SIGKILL)


def test_a_test_that_does_not_exist_is_no_pass(processes: Callable[[], TestProcess]) -> None:
    turn = WorkerRequest(processes(), msgspec.structs.replace(DO, test="nonsense"), 60.0, CLOCK)
    await_answers([turn], CLOCK)
    (result,) = build_worker_results("nonsense", conclude_request(turn, CLOCK))
    assert (result.outcome, result.misconfigured) == (Outcome.NOT_RUN, True)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered"), Outcome.FAIL),
        (RuntimeError("CUDA error: no kernel image is available for execution on the device"), Outcome.NOT_RUN),
        (RuntimeError("CUDA error: of ours"), Outcome.ERROR),
        (MemoryError("96 GiB"), Outcome.NOT_RUN),
        (ValueError("something of ours"), Outcome.ERROR),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), Outcome.NOT_RUN),
    ],
)
def test_what_an_exception_says_of_the_machine(error: Exception, outcome: Outcome) -> None:
    assert build_exception_result("matmul_repeat", error, "cuda:3").outcome is outcome


def test_messages_survive_the_pipe_whatever_they_hold() -> None:
    messages: list[Answer] = [
        ProgressUpdate("b\n\x00ü", 3),
        ResultMessage(Result(test="t", outcome=Outcome.FAIL, reason="x\ny"), last=True),
    ]
    decoder: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)
    for message in messages:
        line = msgspec.json.encode(message)
        assert b"\n" not in line
        assert decoder.decode(line) == message


@pytest.mark.torch
def test_each_device_has_one_process_for_the_whole_run_and_only_the_last_gets_the_fault(more_tests: None) -> None:
    with PlanRunner(
        planned(("speaks", Scope.DEVICE), ("meets", Scope.PEERS), speaks="slow"), CLOCK, SilentProgress()
    ) as runner:
        first, second = runner.round(), runner.round()
        assert [device.name for device in runner.devices] == ["cpu:0", "cpu:1"]
    pids = [result.evidence["pid"] for result in first]
    assert pids == [result.evidence["pid"] for result in second]
    assert pids[:2] == pids[2:]
    assert [result.evidence["fault"] for result in first[:2]] == ["", "slow"]
    assert [result.evidence["rank"] for result in first[2:]] == [0, 1]


@pytest.mark.torch
def test_of_devices_that_wait_for_each_other_the_one_that_hangs_is_named(more_tests: None) -> None:
    results = run_plan(planned(("meets", Scope.PEERS), watchdog_s=10.0, meets="late@cpu:0"), CLOCK, SilentProgress())
    assert told(results) == [("meets", "cpu:0", "hang"), ("meets", "cpu:1", "not_run")]
    assert "last seen at: going to meeting 1, while cpu:1 waited at: at meeting 1" in results[0].reason
    assert "it waited for cpu:0, last seen at: going to meeting 1" in results[1].reason


@pytest.mark.torch
def test_who_only_waited_for_another_is_not_accused_and_goes_on_in_a_new_process(
    more_tests: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("preflight.execution.worker_requests.PEER_GRACE_S", 0.5)
    results = run_plan(
        planned(("meets", Scope.PEERS), ("speaks", Scope.DEVICE), meets="killed"), CLOCK, SilentProgress()
    )
    assert [result.outcome.value for result in results] == ["not_run", "error", "pass", "not_run"]
    assert "it waited for cpu:1" in results[0].reason
    assert "was killed by SIGKILL at: going to meeting 1" in results[1].reason


@pytest.mark.torch
def test_a_start_of_nccl_that_takes_too_long_accuses_no_device_and_is_not_tried_again(
    more_tests: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("preflight.execution.worker_requests.JOIN_WATCHDOG_S", 1.0)
    build = PlanRunner._new_group
    monkeypatch.setattr(PlanRunner, "_new_group", lambda runner, ranks: build(runner, ranks + 1))  # one never comes
    plan = planned(("meets", Scope.PEERS), ("speaks", Scope.DEVICE))
    results = run_plan(msgspec.structs.replace(plan, specs=(*plan.specs, plan.specs[0])), CLOCK, SilentProgress())
    assert [result.outcome.value for result in results] == ["error", "error", "pass", "pass", "not_run", "not_run"]
    assert "NCCL (on the host gloo) did not start within 1 s" in results[0].reason
    assert "did not start for an earlier test" in results[4].reason


@pytest.mark.torch
def test_a_device_whose_test_raised_an_exception_goes_on_in_a_new_process(more_tests: None) -> None:
    plan = planned(("speaks", Scope.DEVICE), ("measures", Scope.DEVICE), speaks="raises")
    plan = msgspec.structs.replace(plan, specs=(*plan.specs, plan.specs[0]))
    results = run_plan(plan, CLOCK, SilentProgress())
    assert [result.outcome.value for result in results] == ["pass", "fail", "pass", "pass", "pass", "fail"]
    assert results[1].reason == "the device failed: CUDA error: misaligned address"
    assert results[0].evidence == results[4].evidence  # the other one stayed


@pytest.mark.torch
def test_a_gpu_that_torch_cannot_use_is_refused_and_never_taken_for_a_host(
    processes: Callable[[], TestProcess],
) -> None:
    turn = WorkerRequest(
        processes(),
        AssignRequest(DeviceAssignment(index=0, name="cuda:0", torch_name="cuda:0", visible="GPU-no")),
        60.0,
        CLOCK,
    )
    await_answers([turn], CLOCK)
    assert isinstance(turn.answer, DeviceRefused)
    assert turn.answer.outcome in (Outcome.NOT_RUN, Outcome.ERROR)
    assert turn.answer.misconfigured is (turn.answer.outcome is Outcome.NOT_RUN)


@pytest.mark.torch
def test_a_device_that_is_gone_leaves_the_others_and_no_peers(more_tests: None) -> None:
    three = planned(("speaks", Scope.DEVICE), ("meets", Scope.PEERS), ("gpu_state", Scope.NODE), speaks="crash@cpu:0")
    results = run_plan(three, CLOCK, SilentProgress())
    assert told(results)[:4] == [
        ("speaks", "cpu:0", "fail"),
        ("speaks", "cpu:1", "pass"),
        ("meets", "cpu:0", "not_run"),
        ("meets", "cpu:1", "not_run"),
    ]
    assert results[2].reason == "speaks crashed its process; run it again with --only meets"
    assert results[3].reason == "it needs cpu:0 as a peer"
    assert results[4].test == "gpu_state"


def test_a_fault_on_a_device_that_is_not_there_is_refused_with_those_that_are(more_tests: None) -> None:
    with pytest.raises(PlanError, match=r"speaks:slow@cuda:9.*: no such device; use one of cpu:0, cpu:1"):
        run_plan(planned(("speaks", Scope.DEVICE), speaks="slow@cuda:9"), CLOCK, SilentProgress())


def test_a_process_without_an_answer_to_its_parent_dies_with_it(tmp_path: Path) -> None:
    script = (
        "import select, sys, time\n"
        "from preflight.execution.worker_process import TestProcess\n"
        "from preflight.worker_messages import RunRequest\n"
        "process = TestProcess('', 1)\n"
        "process.ask(RunRequest(test='gpu_state', level='gate', seconds=1.0, fault='hang'))\n"
        "while 'hang' not in str(process.read(select.select([process._out], [], [])[0])): pass\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    assert gone(pid)


def gone(pid: int) -> bool:
    """Wait, up to the test's own time limit, until there is no such process or only its remains."""
    while True:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        os.sched_yield()
