"""Keeps an NVML child at work, and kills it when a sweep does not end.

A driver that lost a GPU may block its caller for ever, sometimes beyond the reach of SIGKILL. So the child has a
deadline; an overdue one is a sample of its own (`NvmlHang`), is killed or else abandoned and counted, and another is
started after a growing pause. Nothing here ever waits.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import IO

import msgspec

from healthd.host import Host
from healthd.samples.nvml import Inventory, NvmlHang, NvmlSample, NvmlUnavailable, Sweep
from healthd.slate import SLATE_BYTES, Slate

START_DEADLINE_S = 30.0  # initialising a driver without persistence takes seconds on eight GPUs
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
ABANDONED_MAX = 3  # unkillable children; beyond that no new one is started until one is gone
LINE_BYTES_MAX = 1 << 20
_READ_BYTES = 1 << 16

_Message = Inventory | Sweep | NvmlUnavailable


@dataclass
class _Child:
    process: subprocess.Popen[bytes]
    slate: Slate
    heard_at: float
    buffer: bytearray
    inventory_seen: bool = False
    gave_up: bool = False  # it said why it will end


class NvmlCollector:
    """The parent's side of the child."""

    def __init__(self, host: Host, interval_s: float, deadline_s: float) -> None:
        self._host = host
        self._interval_s = interval_s
        self._deadline_s = deadline_s
        self._child: _Child | None = None
        self._abandoned: list[subprocess.Popen[bytes]] = []
        self._pause_s = PAUSE_S_MIN
        self._start_at = 0.0
        self._decoder = msgspec.json.Decoder(_Message)
        self.starts = 0

    @property
    def abandoned(self) -> int:
        """Killed children that are still there."""
        return len(self._abandoned)

    @property
    def pipe(self) -> IO[bytes] | None:
        """What to wait for; another object with every child, None while there is none."""
        return None if self._child is None else self._child.process.stdout

    def pids(self) -> list[int]:
        """The living child, if any."""
        return [] if self._child is None else [self._child.process.pid]

    def rest(self) -> bool:
        """Let no child run, because a GPU is to be reset; whether none is left."""
        if self._child is not None:
            self._let_go(self._child)
            self._child = None
            self._start_at = 0.0
        self._abandoned = [process for process in self._abandoned if process.poll() is None]
        return not self._abandoned

    def look_now(self) -> None:
        """Ask for a full sweep at once, because something happened to a GPU."""
        if self._child is not None and self._child.process.stdin is not None:
            with contextlib.suppress(OSError):
                os.write(self._child.process.stdin.fileno(), b"!")

    def poll(self) -> list[NvmlSample]:
        """Whatever is new: call when the pipe is readable, and about once per interval."""
        now = self._host.clock.monotonic()
        self._abandoned = [process for process in self._abandoned if process.poll() is None]
        if self._child is None:
            if now >= self._start_at and len(self._abandoned) < ABANDONED_MAX:
                self._start(now)
            return []
        samples, ended = self._read(self._child, now)
        if ended:
            samples += self._ended(self._child, now)
        elif now - self._child.heard_at > self._allowed_s(self._child):
            samples.append(self._hung(self._child, now))
        return samples

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._let_go(self._child)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.process.wait(1.0)
            self._child = None

    def _allowed_s(self, child: _Child) -> float:
        return self._interval_s + self._deadline_s if child.inventory_seen else START_DEADLINE_S

    def _start(self, now: float) -> None:
        descriptor = os.memfd_create("nvml-slate", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, SLATE_BYTES)
            library = str(self._host.nvml_library or "")
            command = [sys.executable, "-m", "healthd.nvml_child", library, str(self._interval_s), str(descriptor)]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(descriptor,), bufsize=0
            )
            slate = Slate(descriptor)
        finally:
            os.close(descriptor)
        os.set_blocking(_output(process), False)
        self._child = _Child(process, slate, now, bytearray())
        self.starts += 1

    def _read(self, child: _Child, now: float) -> tuple[list[NvmlSample], bool]:
        """New messages, and whether the child's end of the pipe is closed."""
        ended = False
        try:
            while data := os.read(_output(child.process), _READ_BYTES):
                child.buffer += data
            ended = True
        except BlockingIOError:
            pass
        *lines, rest = child.buffer.split(b"\n")
        child.buffer = rest
        samples: list[NvmlSample] = []
        for line in lines:
            try:
                samples.append(self._decoder.decode(line))
            except msgspec.DecodeError as error:  # something in the child's process wrote to its standard output
                samples.append(NvmlUnavailable(self._host.clock.wall(), f"unreadable message of the child: {error}"))
        if samples:
            child.heard_at = now
        child.inventory_seen |= any(isinstance(sample, Inventory) for sample in samples)
        child.gave_up |= any(isinstance(sample, NvmlUnavailable) for sample in samples)
        if any(isinstance(sample, Sweep) for sample in samples):
            self._pause_s = PAUSE_S_MIN
        return samples, ended or len(rest) > LINE_BYTES_MAX

    def _ended(self, child: _Child, now: float) -> list[NvmlSample]:
        """The child is gone, or has closed its output, which is the same."""
        self._let_go(child)
        self._retry_later(now)
        if child.gave_up:
            return []
        return [NvmlUnavailable(self._host.clock.wall(), "the NVML child ended unexpectedly; it will be started again")]

    def _hung(self, child: _Child, now: float) -> NvmlHang:
        index, call = child.slate.read()
        self._let_go(child)
        self._retry_later(now)
        return NvmlHang(self._host.clock.wall(), index, call or "no call of its own", now - child.heard_at)

    def _let_go(self, child: _Child) -> None:
        child.process.kill()
        for pipe in (child.process.stdin, child.process.stdout):
            if pipe is not None:
                pipe.close()
        child.slate.close()
        self._abandoned.append(child.process)  # until it is reaped; one that cannot die stays

    def _retry_later(self, now: float) -> None:
        self._child = None
        self._start_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)


def _output(process: subprocess.Popen[bytes]) -> int:
    if process.stdout is None:
        raise ValueError("the child must have been started with a pipe")
    return process.stdout.fileno()
