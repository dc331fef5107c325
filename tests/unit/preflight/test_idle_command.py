"""A node is tested while it is idle, and the test ends once work comes: a job, a process on a GPU, another preflight."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from preflight.commands.idle_command import STATE, IdleTest, explain_not_due, read_idle_test
from preflight.execution import idle_preemption
from preflight.execution.gpu_process_watch import find_foreign_process, is_descendant
from preflight.execution.idle_preemption import WorkWatch, explain_held, find_slurm_job
from preflight.results import Verdict

ROOT = Path(__file__).parents[3]
DEADLINE_S = 60.0
NOWHERE = "/nowhere"
# beside other tests' preflights and jobs
APART = [
    *("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("sh", "-c", 'ip link set lo up; exec "$0" "$@"'),
]


def test_a_test_is_due_once_the_newest_is_old_enough() -> None:
    assert explain_not_due(None, 24, 0.0) == ""
    newest = IdleTest(1000.0, "standard", Verdict.PASS)
    assert explain_not_due(newest, 24, 1000.0 + 24 * 3600) == ""
    assert explain_not_due(newest, 24, 1000.0 + 7200) == "the newest test, standard, is 2.0 h old: pass"
    assert explain_not_due(newest, 24, 999.0) == "", "a wrong clock must not put off all tests"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"null", b'{"at": "x"}', b'{"at":1,"level":"gate","verdict":"no"}']
)
def test_a_file_that_cannot_be_read_makes_a_test_due(tmp_path: Path, content: bytes) -> None:
    (tmp_path / STATE).write_bytes(content)
    assert read_idle_test(tmp_path) is None


def test_descendants_are_told_from_others() -> None:
    own = os.getpid()
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        grandchild = int(shell.stdout.readline())
        try:
            assert is_descendant(grandchild, own)
            assert is_descendant(own, own)
            assert not is_descendant(own, grandchild)
            assert not is_descendant(1, own)
        finally:
            os.kill(grandchild, signal.SIGKILL)
    assert not is_descendant(grandchild, own)


class Library:
    """NVML as it lists processes; the second GPU does not answer."""

    NVMLError = RuntimeError

    def __init__(self, *pids: int) -> None:
        self._pids = pids

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVML's name
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802 - NVML's name
        return index

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:  # noqa: N802 - NVML's name
        if handle:
            raise RuntimeError("GPU is lost")
        return [SimpleNamespace(pid=pid) for pid in self._pids]


def test_only_a_process_of_others_on_a_gpu_is_work() -> None:
    assert find_foreign_process(Library(), os.getpid()) == ""
    assert find_foreign_process(Library(os.getpid()), os.getpid()) == ""
    assert find_foreign_process(Library(os.getpid(), 1), os.getpid()).startswith("process 1 (")
    assert find_foreign_process(Library(1 << 30), os.getpid()) == f"process {1 << 30} uses GPU 0"


def test_slurms_step_processes_are_found_and_its_own_are_not(tmp_path: Path) -> None:
    for pid, line in (
        ("1", b"/usr/sbin/slurmd\0-D\0"),
        ("12", b"/usr/sbin/slurmstepd\0infinity\0"),
        ("self", b"slurmstepd: [1.0]"),
    ):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes(line)
    (tmp_path / "13").mkdir()  # has just ended
    assert find_slurm_job(tmp_path) == ""
    (tmp_path / "14").mkdir()
    (tmp_path / "14" / "cmdline").write_bytes(b"slurmstepd: [77.batch]\0\0\0")
    assert find_slurm_job(tmp_path) == "77"


@pytest.mark.parametrize(
    ("answer", "held"),
    [
        (b'HTTP/1.0 200 OK\r\n\r\n{"fit": false}', True),
        (b'HTTP/1.0 200 OK\r\n\r\n{"fit": true}', False),
        (b"HTTP/1.0 200 OK\r\n\r\n[]", False),
        (b"HTTP/1.0 500 no\r\n\r\n", False),
        (b"", False),
    ],
)
def test_a_node_with_a_known_fault_is_left_to_the_playbook(tmp_path: Path, answer: bytes, *, held: bool) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def respond() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=respond)
        thread.start()
        assert bool(explain_held(path)) is held
        thread.join()
    assert explain_held(str(tmp_path / "absent")) == ""


@pytest.fixture
def terminated(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set once this process got SIGTERM; with an address and a view of processes of its own."""
    monkeypatch.setattr(idle_preemption, "ADDRESS", f"\0gpu-healthd/test-{os.getpid()}")
    monkeypatch.setattr(idle_preemption, "find_slurm_job", lambda: "")
    came = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: came.set())
    yield came
    signal.signal(signal.SIGTERM, before)


def await_event(came: threading.Event) -> None:
    end = time.monotonic() + DEADLINE_S
    while not came.is_set():  # not one wait: a signal interrupts the main thread between two
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_process_that_comes_to_a_gpu_ends_the_test(
    terminated: threading.Event, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    watcher = f"import time, pathlib\nprint('idle', flush=True)\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(.01)\nprint('process 7 uses GPU 0')"
    monkeypatch.setattr(idle_preemption, "_WATCH", watcher)
    watch = WorkWatch(NOWHERE)
    assert watch.find_work() == ""
    watch.start()
    assert not terminated.is_set()
    go.touch()
    await_event(terminated)
    assert watch.work == "process 7 uses GPU 0"
    watch.close()


def test_a_busy_node_and_a_second_idle_test_are_named(
    terminated: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_preemption, "_WATCH", "print('process 7 uses GPU 0')")
    watch = WorkWatch(NOWHERE)
    assert watch.find_work() == "process 7 uses GPU 0"
    with pytest.raises(idle_preemption.AlreadyTestedError, match=f"process {os.getpid()} tests this node already"):
        WorkWatch(NOWHERE)
    watch.close()
    assert not terminated.is_set()


def test_a_watcher_that_cannot_work_ends_nothing(terminated: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_preemption, "_WATCH", "")
    watch = WorkWatch(NOWHERE)
    assert watch.find_work() == ""
    watch.start()
    time.sleep(0.5)
    watch.close()
    assert not terminated.is_set()


def test_nobody_listens_where_no_idle_test_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_preemption, "ADDRESS", f"\0gpu-healthd/none-{os.getpid()}")
    assert not idle_preemption.request_idle_stop()


def test_a_holder_that_never_ends_keeps_no_job_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_preemption, "ADDRESS", f"\0gpu-healthd/deaf-{os.getpid()}")
    monkeypatch.setattr(idle_preemption, "read_peer", lambda _: 0)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(idle_preemption.ADDRESS)
        listener.listen()
        assert idle_preemption.request_idle_stop(0.1)


def idle(folder: Path, *options: str, **more: str) -> subprocess.Popen[str]:
    argv = [*APART, sys.executable, "-m", "preflight", "idle", "--socket", NOWHERE, "--baseline", str(folder), *options]
    environ = os.environ | {"HEALTHD_NODE": "n1"} | more
    return subprocess.Popen(argv, cwd=ROOT, env=environ, stderr=subprocess.PIPE, text=True)


def preempt(script: str) -> Callable[[subprocess.Popen[str]], str]:
    """Run something in the namespaces of the process under test, once its test runs; what the test said then."""

    def run(process: subprocess.Popen[str]) -> str:
        end = time.monotonic() + DEADLINE_S
        inside = ["nsenter", f"--target={find_child(process.pid)}", "--net", "--pid", "--mount"]
        while "preflight.execution.worker" not in subprocess.check_output(
            [*inside, "ps", "axww", "-o", "args"], text=True
        ):
            assert time.monotonic() < end
            time.sleep(0.1)
        with subprocess.Popen([*inside, "bash", "-c", script], cwd=ROOT, stdout=subprocess.DEVNULL) as coming:
            _, said = process.communicate(timeout=DEADLINE_S)
            coming.kill()
        return said

    return run


def find_child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    end = time.monotonic() + DEADLINE_S
    while not (found := children.read_text().split()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return int(found[0])


@pytest.mark.torch
@pytest.mark.parametrize(
    ("script", "words"),
    [
        (f"exec {sys.executable} -m preflight run --only gpu_state", "asked for the node"),
        ("exec -a 'slurmstepd: [77.batch]' sleep 60", "Slurm job 77 began"),
    ],
    ids=["preflight", "slurm"],
)
def test_work_ends_the_test_and_all_its_processes(tmp_path: Path, script: str, words: str) -> None:
    with idle(tmp_path) as process:
        try:
            said = preempt(script)(process)
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert "n1: the test was ended: " in said
    assert words in said
    assert read_idle_test(tmp_path) is None, "the test has to be made up for"


@pytest.mark.torch
def test_an_idle_node_is_tested_once_a_day(tmp_path: Path) -> None:
    with idle(tmp_path, "--level", "gate") as process:
        _, said = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, said) == (0, "n1: pass\n")
    record = json.loads((tmp_path / STATE).read_text())
    assert (record["level"], record["verdict"]) == ("gate", "pass")
    with idle(tmp_path) as process:
        _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert "n1: not tested: the newest test, gate, is 0.0 h old: pass" in said


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--level", "gat"], 2, "gate"),
        (["--every", "-1"], 2, "--every"),
        (["--baseline", "/proc/none"], 3, "/proc/none/idle-test.json: cannot be written"),
    ],
)
def test_bad_input_is_named_before_the_test(tmp_path: Path, options: list[str], code: int, words: str) -> None:
    with idle(tmp_path, *options) as process:
        _, said = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, "Traceback" in said) == (code, False), said
    assert words in said
