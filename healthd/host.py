"""The only access to this machine: its files, its identity, running programs. Tests replace it."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from healthd.samples.start_failure import StartFailure
from vocabulary.clock import Clock, SystemClock

# Errors that pass once descriptors, processes or memory are free again. A later retry is right.
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS})
OUTPUT_BYTES_MAX = 1 << 20
_READ_BYTES = 1 << 16
_WAIT_S = 1.0  # for the kernel to end what was killed


class StartFailures:
    """Programs whose last start failed, and why. Thread-safe."""

    def __init__(self) -> None:
        self._current: dict[str, StartFailure] = {}

    @property
    def current(self) -> Mapping[str, StartFailure]:
        """Return the current failures by program."""
        return self._current

    def note(self, program: str, error: OSError) -> None:
        """Record that the start of `program` failed with `error`."""
        limits = {errno.EMFILE: resource.RLIMIT_NOFILE, errno.EAGAIN: resource.RLIMIT_NPROC}
        number = error.errno or 0
        limit = resource.getrlimit(limits[number])[0] if number in limits else resource.RLIM_INFINITY
        failure = StartFailure(program, number, error.strerror or str(error), None if limit < 0 else limit)
        self._current = {**self._current, program: failure}

    def clear(self, program: str) -> None:
        """Record that `program` was started, or is no longer wanted."""
        if program in self._current:
            self._current = {name: failure for name, failure in self._current.items() if name != program}


@dataclass(frozen=True)
class Host:
    """One machine. `root` is the source child's root directory; `nvml_library` None: as pynvml finds it."""

    root: Path = Path("/")
    proc: Path = Path("/proc")
    nvml_library: Path | None = None
    clock: Clock = field(default_factory=SystemClock)
    start_failures: StartFailures = field(default_factory=StartFailures, compare=False)

    def boot_id(self) -> str:
        """Return the kernel's random id of this boot.

        Raises:
            OSError: /proc is missing.
        """
        return (self.proc / "sys/kernel/random/boot_id").read_text().strip()

    def process_start(self, pid: int) -> int | None:
        """Return a process's start in ticks since boot, which distinguishes reused pids; None if it has exited."""
        try:
            fields = (self.proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        return None if fields[0] in (b"Z", b"X") else int(fields[19])

    def run(self, command: Sequence[str], deadline_s: float) -> RunningCommand:
        """Start a program by argument list, never through a shell.

        Raises:
            OSError: it cannot be started.
        """
        process = start_program(
            command,
            errors="pipe",
            env=os.environ | ({"HEALTHD_NVML_LIBRARY": str(self.nvml_library)} if self.nvml_library else {}),
            new_session=True,  # so that its own children can be ended with it
        )
        return RunningCommand(process, self.clock, self.clock.monotonic() + deadline_s)

    def end_group(self, pid: int, started: int) -> None:
        """Kill the process group that `pid` leads, if it is still the process that began at `started`."""
        if self.process_start(pid) == started:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)


@dataclass(frozen=True)
class CommandResult:
    """A program's end. `returncode` is negative for a signal; `overdue`: it was killed at its deadline."""

    returncode: int
    stdout: str
    stderr: str
    overdue: bool


class RunningCommand:
    """A running program, polled from time to time. Output beyond a megabyte is dropped from the front."""

    def __init__(self, process: subprocess.Popen[bytes], clock: Clock, deadline: float) -> None:
        self._process = process
        self._clock = clock
        self._deadline = deadline
        self._overdue = False
        self._output = {}
        for pipe in (process.stdout, process.stderr):
            if pipe is None:
                raise ValueError("the program must have been started with pipes for its output")
            os.set_blocking(pipe.fileno(), False)
            self._output[pipe] = bytearray()

    @property
    def pid(self) -> int:
        """The program's process and process group."""
        return self._process.pid

    def poll(self) -> CommandResult | None:
        """Read its output and return its end, once it has ended. Past the deadline the whole group is killed."""
        self._drain()
        if self._process.poll() is None:
            if self._clock.monotonic() >= self._deadline:
                self._overdue = True
                self.kill()
            return None
        self._drain()
        stdout, stderr = (bytes(data).decode(errors="replace") for data in self._output.values())
        self._close_pipes()
        return CommandResult(self._process.returncode, stdout, stderr, self._overdue)

    def kill(self) -> None:
        """Kill the program and all it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the program if it still runs, and close its pipes."""
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_WAIT_S)
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in self._output:
            pipe.close()

    def _drain(self) -> None:
        for pipe, kept in self._output.items():
            with contextlib.suppress(BlockingIOError):
                while data := os.read(pipe.fileno(), _READ_BYTES):
                    kept.extend(data)
                    del kept[:-OUTPUT_BYTES_MAX]


def start_program(
    command: Sequence[str],
    *,
    with_input: bool = False,
    errors: Literal["inherit", "pipe", "drop"] = "inherit",
    pass_fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    new_session: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a program with unbuffered pipes for output and, on request, input and errors.

    A failed start leaves no descriptor open. Popen's own pipes and /dev/null may stay open then, so each retry would
    worsen a shortage of descriptors.

    Raises:
        OSError: it cannot be started.
    """
    with contextlib.ExitStack() as our_ends, contextlib.ExitStack() as its_ends:
        null = its_ends.enter_context(open(os.devnull, "r+b", buffering=0))  # noqa: PTH123 - pathlib opens the same
        stdin, to_child = _input_pipe(our_ends, its_ends) if with_input else (null, None)
        stdout, output = _output_pipe(our_ends, its_ends)
        stderr, complaints = _output_pipe(our_ends, its_ends) if errors == "pipe" else (null, None)
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=None if errors == "inherit" else stderr,
            bufsize=0,
            pass_fds=pass_fds,
            env=env,
            start_new_session=new_session,
        )
        our_ends.pop_all()
    process.stdin, process.stdout, process.stderr = to_child, output, complaints
    return process


def _input_pipe(our_ends: contextlib.ExitStack, its_ends: contextlib.ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    read, write = os.pipe()
    return its_ends.enter_context(_open_unbuffered(read, "rb")), our_ends.enter_context(_open_unbuffered(write, "wb"))


def _output_pipe(our_ends: contextlib.ExitStack, its_ends: contextlib.ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    read, write = os.pipe()
    return its_ends.enter_context(_open_unbuffered(write, "wb")), our_ends.enter_context(_open_unbuffered(read, "rb"))


def _open_unbuffered(descriptor: int, mode: str) -> IO[bytes]:
    return os.fdopen(descriptor, mode, buffering=0)
