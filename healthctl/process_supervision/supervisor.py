"""Keeps programs running, as systemd would, and ends all of them, even if it or its parent is killed.

It is a separate process. It adopts every orphan below it (a "child subreaper"), so that detached daemons, such as Slurm's
step daemons and their trainers, are found and ended too. The parent sends JSON lines to its standard input; end of
file means "end everything".
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
RESTART_DELAY_S = 0.2
TERM_GRACE_S = 3.0
KILL_DEADLINE_S = 10.0


class ProgramSpec(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag="start"):
    """A program to run. Its output is appended to the file `log`."""

    name: str
    argv: list[str]
    log: str
    env: dict[str, str] = {}
    cwd: str = "/"
    restart: bool = False


class StopRequest(msgspec.Struct, frozen=True, tag="stop"):
    """Ends one program permanently."""

    name: str


class ProgramStarted(msgspec.Struct, frozen=True, tag="started"):
    """A program runs with this process id; sent again after each restart."""

    name: str
    pid: int


class ProgramExited(msgspec.Struct, frozen=True, tag="exited"):
    """A program ended; `code` is negative for a signal. 127: it could not be started, `detail` says why."""

    name: str
    code: int
    detail: str = ""


Request = ProgramSpec | StopRequest
Notice = ProgramStarted | ProgramExited

_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def list_descendants(pid: int) -> list[int]:
    """Every running process below `pid`, nearest first."""
    found: list[int] = []
    frontier = [pid]
    while frontier:
        children: list[int] = []
        for parent in frontier:
            for task in Path(f"/proc/{parent}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    children += map(int, task.read_text().split())
        found += children
        frontier = children
    return found


class _ProcessTable:
    """The programs of this process, by name and by process id."""

    def __init__(self) -> None:
        self.programs: dict[str, ProgramSpec] = {}
        self.running: dict[int, str] = {}
        self.restart_at: dict[str, float] = {}

    def start(self, program: ProgramSpec) -> Notice:
        self.programs[program.name] = program
        try:
            with Path(program.log).open("ab") as log:
                child = subprocess.Popen(
                    program.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=program.env,
                    cwd=program.cwd,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
                )
        except OSError as error:
            return ProgramExited(program.name, 127, f"cannot start {program.argv[0]}: {error}")
        child.returncode = 0  # reaped by reap(), together with the orphans
        self.running[child.pid] = program.name
        return ProgramStarted(program.name, child.pid)

    def stop(self, name: str) -> None:
        self.programs.pop(name, None)
        self.restart_at.pop(name, None)
        for pid, running in self.running.items():
            if running == name:
                _signal_process(pid, signal.SIGTERM)

    def reap(self) -> list[Notice]:
        """Reap ended processes, ours and adopted; report ours, and schedule restarts."""
        notices: list[Notice] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            name = self.running.pop(pid, None)
            if name is None:
                continue
            notices.append(ProgramExited(name, os.waitstatus_to_exitcode(status)))
            program = self.programs.get(name)
            if program is not None and program.restart:
                self.restart_at[name] = time.monotonic() + RESTART_DELAY_S
        return notices

    def restart_due(self) -> list[Notice]:
        due = [name for name, at in self.restart_at.items() if at <= time.monotonic()]
        for name in due:
            del self.restart_at[name]
        return [self.start(self.programs[name]) for name in due]

    def end(self) -> None:
        """End everything below this process: SIGTERM, then SIGKILL."""
        names = list(self.programs)
        for pid, _ in sorted(self.running.items(), key=lambda item: -names.index(item[1]) if item[1] in names else 0):
            _signal_process(pid, signal.SIGTERM)
        self.programs.clear()
        grace = time.monotonic() + TERM_GRACE_S
        deadline = grace + KILL_DEADLINE_S
        while (left := list_descendants(os.getpid())) and time.monotonic() < deadline:
            if time.monotonic() > grace or not self.running:
                for pid in left:
                    _signal_process(pid, signal.SIGKILL)
            self.reap()
            time.sleep(0.02)


def _signal_process(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _send_notice(notice: Notice) -> None:
    os.write(1, msgspec.json.encode(notice) + b"\n")


def main() -> None:
    """Serve the parent until its end of the pipe closes."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    watch = _ProcessTable()
    try:
        with contextlib.suppress(BrokenPipeError):
            _serve_requests(watch, wake_read)
    finally:
        watch.end()


def _serve_requests(watch: _ProcessTable, wake: int) -> None:
    decoder = msgspec.json.Decoder(Request)
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        buffer = b""
        while True:
            ready = {key.fd for key, _ in selector.select(RESTART_DELAY_S / 2 if watch.restart_at else None)}
            if wake in ready:
                os.read(wake, 4096)
            if 0 in ready:
                data = os.read(0, 65536)
                if not data:
                    return
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    request = decoder.decode(line)
                    if isinstance(request, ProgramSpec):
                        _send_notice(watch.start(request))
                    else:
                        watch.stop(request.name)
            for notice in watch.reap() + watch.restart_due():
                _send_notice(notice)


if __name__ == "__main__":
    main()
