"""One test process as its parent sees it: requests, answers, exit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from preflight.execution.cuda_errors import find_telling_line
from preflight.execution.kernel_cache import choose_kernel_cache, copy_compiled_kernels
from preflight.worker_messages import Answer, Request
from vocabulary.clock import Clock

EXIT_DEADLINE_S = 2.0  # from the end of its output to the exit of a process
REAP_DEADLINE_S = 5.0  # a process stuck in the driver may survive SIGKILL; it must not block this one
NOISE_BYTES_MAX = 1 << 16  # an abort prints its error, then several stack traces
NOISE_CHARACTERS_MAX = 1000
LINE_BYTES_MAX = 16 << 20
READ_BYTES = 1 << 16
QUOTED_BYTES_MAX = 200
# Processes of one node meet over loopback; automatic choice, or a job's setting, may use an interface behind a
# firewall.
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
# NCCL's default. NCCL reads it once per process, and an /etc/nccl.conf that switches NVLS off would make its test an error.
NVLS_BY_DEFAULT = {"NCCL_NVLS_ENABLE": "2"}
# NCCL's settings that a site needs for its topology and network, and those that only print. All others are a job's: the
# hardware is tested with NCCL's own choices, or with those that a test makes and states.
NCCL_PREFIXES = ("NCCL_", "TORCH_NCCL_")
NCCL_ALLOWED = {
    "NCCL_DEBUG",
    "NCCL_DEBUG_FILE",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_HOSTID",  # of a node whose containers share a host name
    "NCCL_IB_GID_INDEX",
    "NCCL_IB_HCA",
    "NCCL_IB_PKEY",
    "NCCL_IB_SL",
    "NCCL_IB_TC",
    "NCCL_NET",
    "NCCL_NET_PLUGIN",
    "NCCL_SOCKET_FAMILY",
    "NCCL_TOPO_FILE",  # of a virtual machine that hides its PCI bus
}
# `-m` would import modules from the current folder, which may belong to any user. -P is new in Python 3.11.
CHILD = """
import sys
sys.path[:] = [*filter(None, sys.path), sys.argv.pop()]
import runpy
runpy.run_module("preflight.execution.worker", run_name="__main__")
"""
PACKAGES = Path(__file__).parents[2]
_ANSWER: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


class TestProcess:
    """A running `preflight.execution.worker`. Its owner ends it, and its children, with `end_processes`."""

    __test__ = False  # prevents pytest from collecting this class

    def __init__(self, name: str, threads: int) -> None:
        """Start it. `threads` limits its CPU threads."""
        self.name = name
        environment = choose_kernel_cache() | strip_job_settings(os.environ)
        copy_compiled_kernels(environment)
        limits = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(os.getpid()), str(PACKAGES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment | LOOPBACK | NVLS_BY_DEFAULT | limits,
            bufsize=0,
            start_new_session=True,
        )
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._pipes = tuple(pipe for pipe in pipes if pipe is not None)
        self._in, self._out, self._err = (pipe.fileno() for pipe in self._pipes)
        for descriptor in (self._out, self._err):
            os.set_blocking(descriptor, False)
        self._open = {self._out, self._err}
        self._line = self._noise = b""
        self.garbled = ""

    @property
    def pid(self) -> int:
        """Its process id, also its process group."""
        return self._process.pid

    @property
    def silent(self) -> bool:
        """No answer can follow."""
        return self._out not in self._open

    @property
    def readable(self) -> Iterable[int]:
        """Descriptors to wait for."""
        return self._open

    def ask(self, request: Request) -> None:
        """Send a request. A failure shows in the answers."""
        self._noise = b""  # an error that an earlier test survived explains no later end
        with suppress(BrokenPipeError):
            os.write(self._in, msgspec.json.encode(request) + b"\n")

    def read(self, ready: Iterable[int]) -> list[Answer]:
        """Read from its descriptors that are `ready`; returns complete answers.

        An ended process says nothing more, even if its child still holds the pipes. Nothing after an invalid line is read:
        `garbled` quotes that line.
        """
        ended = self._process.poll() is not None  # before reading, so that all its output is available
        for descriptor in tuple(self._open) if ended else self._open.intersection(ready):
            self._take(descriptor, to_the_end=ended)
        *lines, self._line = self._line.split(b"\n")
        if len(self._line) > LINE_BYTES_MAX:
            lines.append(self._line)
        answers: list[Answer] = []
        for line in lines:
            try:
                answers.append(_ANSWER.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self.garbled = f"{error}: {line[:QUOTED_BYTES_MAX].decode(errors='backslashreplace')}"
                self._open.discard(self._out)
                break
        return answers

    def _take(self, descriptor: int, *, to_the_end: bool) -> None:
        for _ in range(LINE_BYTES_MAX // READ_BYTES if to_the_end else 1):
            try:
                chunk = os.read(descriptor, READ_BYTES)
            except BlockingIOError:
                break
            if not chunk:
                self._open.discard(descriptor)
                return
            if descriptor == self._out:
                self._line += chunk
            else:
                self._keep(chunk)
        if to_the_end:
            self._open.discard(descriptor)

    def _keep(self, noise: bytes) -> None:
        self._noise = (self._noise + noise)[-NOISE_BYTES_MAX:]

    def noise(self) -> str:
        """What it last printed on standard error since its last request: the last line that names an error of CUDA, if any."""
        return find_telling_line(self._noise.decode(errors="backslashreplace"))[:NOISE_CHARACTERS_MAX]

    def code(self) -> int:
        """The exit code of an ended process, or minus the signal."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_DEADLINE_S)
        return -signal.SIGKILL if self._process.returncode is None else self._process.returncode

    def kill(self) -> None:
        """Kill it and its children, without waiting."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self, seconds: float) -> None:
        """Wait for a killed process; give up on one that cannot die."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, seconds))
        for pipe in self._pipes:
            pipe.close()


def strip_job_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without a job's settings of NCCL."""
    return {
        name: value for name, value in environ.items() if name in NCCL_ALLOWED or not name.startswith(NCCL_PREFIXES)
    }


def end_processes(processes: Iterable[TestProcess], clock: Clock) -> None:
    """Kill processes and their children together: those that cannot die share one deadline."""
    doomed = list(processes)
    for process in doomed:
        process.kill()
    deadline = clock.monotonic() + REAP_DEADLINE_S
    for process in doomed:
        process.reap(deadline - clock.monotonic())
