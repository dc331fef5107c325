"""The only door to this machine: where its files are, who it is, how a program is run. Tests give it another machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vocabulary.clock import Clock, SystemClock

OUTPUT_BYTES_MAX = 1 << 20
_READ_BYTES = 1 << 16
_WAIT_S = 1.0  # for the kernel to end what was killed


@dataclass(frozen=True)
class Host:
    """One machine. `root` is what the source child takes for /; `nvml_library` None means: as pynvml finds it."""

    root: Path = Path("/")
    proc: Path = Path("/proc")
    nvml_library: Path | None = None
    clock: Clock = field(default_factory=SystemClock)

    def boot_id(self) -> str:
        """The kernel's random name for this boot.

        Raises:
            OSError: /proc is not there.
        """
        return (self.proc / "sys/kernel/random/boot_id").read_text().strip()

    def process_start(self, pid: int) -> int | None:
        """When process `pid` began, in ticks since boot: tells a reused pid from the old one. None if it is gone."""
        try:
            fields = (self.proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        return None if fields[0] in (b"Z", b"X") else int(fields[19])

    def run(self, command: Sequence[str], deadline_s: float) -> Command:
        """Start a program by argument list, never through a shell.

        Raises:
            OSError: it cannot be started.
        """
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | ({"HEALTHD_NVML_LIBRARY": str(self.nvml_library)} if self.nvml_library else {}),
            start_new_session=True,  # so that its own children can be ended with it
        )
        return Command(process, self.clock, self.clock.monotonic() + deadline_s)

    def end_group(self, pid: int, started: int) -> None:
        """Kill the process group that `pid` leads, if it is still the process that began at `started`."""
        if self.process_start(pid) == started:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)


@dataclass(frozen=True)
class Finished:
    """A program's end. `returncode` is negative for a signal; `overdue` means we ended it at its deadline."""

    returncode: int
    stdout: str
    stderr: str
    overdue: bool


class Command:
    """A running program, looked at from time to time. Output beyond a megabyte is dropped from the front."""

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

    def poll(self) -> Finished | None:
        """Drain its output; its end, once it has ended. Past the deadline the whole group is killed."""
        self._drain()
        if self._process.poll() is None:
            if self._clock.monotonic() >= self._deadline:
                self._overdue = True
                self.kill()
            return None
        self._drain()
        stdout, stderr = (bytes(data).decode(errors="replace") for data in self._output.values())
        self._close_pipes()
        return Finished(self._process.returncode, stdout, stderr, self._overdue)

    def kill(self) -> None:
        """End the program and all it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the program, if it has not ended, and let go of it."""
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
