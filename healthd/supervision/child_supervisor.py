"""Supervises one child program: starts it, reads its output, and replaces it when it hangs. Never blocks.

A read of a dead device may block its caller forever, sometimes beyond the reach of SIGKILL. So whatever may block runs
in a child; an overdue child is killed, or else abandoned and counted, and another starts after a growing pause.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO, Protocol

from healthd.host import Host, start_program
from healthd.supervision.child_call_page import CALL_PAGE_BYTES, ChildCallPage
from vocabulary.clock import Clock

PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
ABANDONED_MAX = 3  # unkillable children; beyond that none is started until one has exited
LINE_BYTES_MAX = 4 << 20
_READ_BYTES = 1 << 16
END_S = 1.0  # how long shutdown waits for all children


class ChildOwner(Protocol):
    """Has children that must end when healthd stops."""

    def close(self, within_s: float) -> None:
        """End them; wait at most `within_s` for them."""


@dataclass
class _Child:
    process: subprocess.Popen[bytes]
    call_page: ChildCallPage
    heard_at: float
    buffer: bytearray = field(default_factory=bytearray)


class ChildSupervisor:
    """One child of `python -m module CALL_PAGE_FD ARGUMENT…`; `arguments` is called at each start."""

    def __init__(self, host: Host, module: str, arguments: Callable[[], Sequence[str]]) -> None:
        self._host = host
        self._module = module
        self._arguments = arguments
        self._child: _Child | None = None
        self._abandoned: list[subprocess.Popen[bytes]] = []
        self._pause_s = PAUSE_S_MIN
        self._start_at = 0.0
        self.starts = 0
        self.abandoned_max = ABANDONED_MAX

    @property
    def alive(self) -> bool:
        """Return whether a child runs."""
        return self._child is not None

    @property
    def abandoned(self) -> int:
        """The number of killed children that have not exited."""
        self._abandoned = [process for process in self._abandoned if process.poll() is None]
        return len(self._abandoned)

    @property
    def pipe(self) -> IO[bytes] | None:
        """The pipe to poll; another object with every child, None while there is none."""
        return None if self._child is None else self._child.process.stdout

    def pids(self) -> list[int]:
        """The live child's pid, if any."""
        return [] if self._child is None else [self._child.process.pid]

    def start_if_due(self) -> bool:
        """Start a child unless one runs, it is too early, or too many are abandoned; return whether it started.

        A failed start, such as for lack of descriptors, processes or memory, is recorded and retried after a pause.
        """
        now = self._host.clock.monotonic()
        if self._child is not None or now < self._start_at or self.abandoned >= self.abandoned_max:
            return False
        try:
            self._child = self._start(now)
        except OSError as error:
            self._host.start_failures.note(self._module, error)
            self._postpone()
            return False
        self._host.start_failures.clear(self._module)
        self.starts += 1
        return True

    def _start(self, now: float) -> _Child:
        """Raises OSError, and then leaves nothing open or running."""
        descriptor = os.memfd_create("call_page", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, CALL_PAGE_BYTES)
            call_page = ChildCallPage(descriptor)
            command = [sys.executable, "-m", self._module, str(descriptor), *self._arguments()]
            try:
                process = start_program(command, with_input=True, pass_fds=(descriptor,))
            except OSError:
                call_page.close()
                raise
        finally:
            os.close(descriptor)
        os.set_blocking(_output_descriptor(process), False)
        return _Child(process, call_page, now)

    def hear(self) -> tuple[list[bytes], bool]:
        """Return new lines, and whether the child has ended, closed its output, or exceeded its output limit."""
        child = self._child
        if child is None:
            return [], False
        ended = False
        try:
            while data := os.read(_output_descriptor(child.process), _READ_BYTES):
                child.buffer += data
            ended = True
        except BlockingIOError:
            pass
        *lines, rest = child.buffer.split(b"\n")
        child.buffer = rest
        if lines:
            child.heard_at = self._host.clock.monotonic()
        return [bytes(line) for line in lines], ended or len(rest) > LINE_BYTES_MAX

    def silent_s(self) -> float:
        """Return the seconds since the child's last output or its start."""
        return 0.0 if self._child is None else self._host.clock.monotonic() - self._child.heard_at

    def read_call(self) -> tuple[int | None, str]:
        """Return the child's current call: a GPU's index or None, and the call."""
        return (None, "") if self._child is None else self._child.call_page.read()

    def tell(self, message: bytes) -> None:
        """Write to the child's standard input; lost if the child does not read it."""
        if self._child is not None and self._child.process.stdin is not None:
            with contextlib.suppress(OSError):
                os.write(self._child.process.stdin.fileno(), message)

    def worked(self) -> None:
        """Record that the child works, so that the next pause is short again."""
        self._pause_s = PAUSE_S_MIN

    def replace(self) -> None:
        """End the child; another starts after a pause that grows each time."""
        self.end()
        self._postpone()

    def end(self) -> None:
        """End the child, if any; another may start at once."""
        child, self._child = self._child, None
        if child is None:
            return
        child.process.kill()
        for pipe in (child.process.stdin, child.process.stdout):
            if pipe is not None:
                pipe.close()
        child.call_page.close()
        self._abandoned.append(child.process)  # until it is reaped; an unkillable child stays
        self._start_at = 0.0

    def _postpone(self) -> None:
        self._start_at = self._host.clock.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)

    def close(self, within_s: float = END_S) -> None:
        """End the child; wait at most `within_s` for it and for those ended before."""
        self.end()
        until = self._host.clock.monotonic() + within_s
        for process in self._abandoned:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - self._host.clock.monotonic()))


def close_all_children(parents: Iterable[ChildOwner], clock: Clock, within_s: float = END_S) -> None:
    """End the children of all parents; wait for all together as long as for one. SIGKILL may not end them."""
    until = clock.monotonic() + within_s
    for parent in parents:
        parent.close(max(0.0, until - clock.monotonic()))


def _output_descriptor(process: subprocess.Popen[bytes]) -> int:
    if process.stdout is None:
        raise ValueError("the child must have been started with a pipe")
    return process.stdout.fileno()
