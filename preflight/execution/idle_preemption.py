"""Ends the test of an idle node once work comes.

Work is a Slurm job, a process on a GPU, a preflight that a job waits for, or a repair of a node that healthd calls unfit.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from preflight.execution.gpu_process_watch import IDLE, LOOK_S
from preflight.execution.worker_process import PACKAGES
from vocabulary.daemon_socket import NoResponseError, call_daemon

ADDRESS = "\0gpu-healthd/idle-preflight"  # an abstract name, not a path: the kernel releases it with the process
STOP_S = 3.0  # for the test's processes to end; one that is stuck in a driver keeps its GPU, and a job must begin
FIRST_LOOK_S = 30.0  # waking a sleeping driver; the test itself finds one that hangs
HEALTHD_S = 0.5
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_STEP = re.compile(rb"slurmstepd: \[(\d+)\.")
_WATCH = "import sys; sys.path.insert(0, sys.argv.pop(1)); from preflight.execution.gpu_process_watch import main; main(int(sys.argv[1]))"


class AlreadyTestedError(Exception):
    """Another process tests this node as idle, or claims to; the message names it."""


def request_idle_stop(seconds: float = STOP_S) -> bool:
    """Have this node's idle test, if there is one, end now; wait until it has.

    Returns:
        Whether one ran. After `seconds` the caller goes on: one that does not end still holds its GPUs, and is found there.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(ADDRESS)
            if read_peer(connection) != os.getpid():
                connection.recv(1)  # the end of the connection is that of the process
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def read_peer(connection: socket.socket) -> int:
    """The process at the other end."""
    pid: int = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
    return pid


def find_slurm_job(proc: Path = Path("/proc")) -> str:
    """The id of a Slurm job with a step on this node; empty if there is none. Slurm names the process of a step by its job."""
    for name in os.listdir(proc):  # noqa: PTH208 - four times as fast, five times a second
        if name.isdigit():
            with suppress(OSError):  # it has just ended
                found = _STEP.match(_read_short(f"{proc}/{name}/cmdline"))
                if found:
                    return found[1].decode()
    return ""


def explain_held(path: str) -> str:
    """Why a node with a known fault is left to the remediator; empty if healthd calls it fit, or does not answer."""
    try:
        status, body = call_daemon(path, "/v1/verdict", HEALTHD_S)
        verdict = json.loads(body) if status == 200 else {}
    except (NoResponseError, ValueError):
        return ""
    unfit = isinstance(verdict, dict) and verdict.get("fit") is False
    return "healthd calls it unfit, and the playbook tests it" if unfit else ""


def _read_short(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 64)
    finally:
        os.close(descriptor)


class WorkWatch:
    """Watches for work in a thread, while the node is tested. `work` says what came.

    Work ends this process by SIGTERM, as an operator would: all test processes are killed at once.
    """

    def __init__(self, path: str) -> None:
        """Begin to watch.

        Args:
            path: healthd's socket.

        Raises:
            AlreadyTestedError: another process does.
        """
        self.work = ""
        self._path = path
        self._stopped = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(ADDRESS)
        except OSError as error:
            self._listener.close()
            raise AlreadyTestedError(_describe_holder()) from error
        self._listener.listen()
        self._asking: list[socket.socket] = []  # open until the process ends: that is the answer
        self._gpus = subprocess.Popen(
            [sys.executable, "-c", _WATCH, str(PACKAGES), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._thread = threading.Thread(target=self._watch, name="preflight-work-watch", daemon=True)

    def find_work(self) -> str:
        """What the node does now; empty if it is idle."""
        if job := find_slurm_job():
            return f"Slurm job {job} runs"
        assert self._gpus.stdout is not None  # noqa: S101 - a pipe was asked for
        ready, _, _ = select.select([self._gpus.stdout], [], [], FIRST_LOOK_S)
        line = self._gpus.stdout.readline().decode(errors="backslashreplace").strip() if ready else ""
        return "" if line == IDLE else line

    def start(self) -> None:
        """From now on work ends this process."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._stopped.set()
        self._gpus.kill()
        with suppress(subprocess.TimeoutExpired):  # stuck in the driver
            self._gpus.wait(1.0)
        if self._thread.ident is not None:
            self._thread.join(2 * (LOOK_S + HEALTHD_S))
        assert self._gpus.stdout is not None  # noqa: S101 - a pipe was asked for
        self._gpus.stdout.close()
        self._listener.close()

    def _watch(self) -> None:
        watched: list[Any] = [self._listener, self._gpus.stdout]
        while not self._stopped.is_set():
            with suppress(OSError, ValueError):  # closed meanwhile
                ready, _, _ = select.select(watched, [], [], LOOK_S)
                self.work = self._read_work(ready, watched)
            if self.work and not self._stopped.is_set():
                os.kill(os.getpid(), signal.SIGTERM)
                return

    def _read_work(self, ready: list[Any], watched: list[Any]) -> str:
        if self._listener in ready:
            connection, _ = self._listener.accept()
            self._asking.append(connection)
            return f"process {read_peer(connection)} asked for the node"
        if self._gpus.stdout in ready:
            assert self._gpus.stdout is not None  # noqa: S101 - a pipe was asked for
            line = self._gpus.stdout.readline().decode(errors="backslashreplace").strip()
            if line and line != IDLE:
                return line
            if not line:
                watched.remove(self._gpus.stdout)  # no driver
        job = find_slurm_job()
        return f"Slurm job {job} began" if job else explain_held(self._path)


def _describe_holder() -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(ADDRESS)
            return f"process {read_peer(connection)} tests this node already"
        except OSError:
            return "another process tests this node already"
