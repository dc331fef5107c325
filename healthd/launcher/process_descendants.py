"""Finds and ends every process that an attempt's ranks started, however it detached itself.

A worker that outlives its rank holds GPU memory, a port, a pipe. It may have left the rank's process group and session,
and, by forking twice, its parent; so the launcher becomes the parent of orphans among its descendants (a *subreaper*).
If it had children of its own before (in a batch script, or as a container's first process), descent alone proves
nothing: then a process belongs to the ranks by its session, by a mark in its environment, or by its parent. Others are
never touched.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MARK_VARIABLE = "HEALTHD_LAUNCHED"
END_SECONDS = 10.0  # for killed processes to exit: one in a driver call may never
POLL_SECONDS = 0.02
_PR_SET_CHILD_SUBREAPER = 36
_DEAD = ("Z", "X")


class Process(NamedTuple):
    """One process of the kernel's table. `started` (ticks since boot) distinguishes reused pids."""

    pid: int
    parent: int
    session: int
    started: int


class DescendantTracker:
    """Descendants of one attempt's ranks; create it before the first of them."""

    def __init__(self) -> None:
        self._mark = secrets.token_hex(8)
        self._sessions: set[int] = set()
        self._alone = os.getpid() != 1 and not list_descendants(os.getpid(), list_processes())
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    @property
    def environ(self) -> dict[str, str]:
        """Return what every rank's environment must hold."""
        return {MARK_VARIABLE: self._mark}

    def add(self, rank: int) -> None:
        """Register a rank's process id; it leads a session."""
        self._sessions.add(rank)

    def living(self) -> list[Process]:
        """Return all living ranks and descendants."""
        processes = list_processes()
        return list_descendants(os.getpid(), processes, [each for each in processes if self._is_root(each)])

    def end(self, ranks: Collection[int]) -> int:
        """Kill them all and wait until they have exited, at most END_SECONDS; return how many there were.

        Args:
            ranks: process ids that other code waits for.
        """
        told: set[Process] = set()
        give_up_at = time.monotonic() + END_SECONDS
        while (living := self.living()) and time.monotonic() < give_up_at:
            for process in living:
                if process not in told:
                    _kill_process(process)
            told |= set(living)
            reap_orphans(ranks)
            time.sleep(POLL_SECONDS)
        return len({process.pid for process in told})

    def _is_root(self, process: Process) -> bool:
        if process.parent != os.getpid():
            return False
        return self._alone or process.session in self._sessions or self._marked(process.pid)

    def _marked(self, pid: int) -> bool:
        try:
            return f"{MARK_VARIABLE}={self._mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False


def list_processes() -> list[Process]:
    """Return all living processes."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        process = _parse_stat_file(stat)
        if process is not None:
            found.append(process)
    return found


def list_descendants(
    ancestor: int, processes: Collection[Process], first: Collection[Process] | None = None
) -> list[Process]:
    """Return a process's descendants; if `first` is given, only those children and their descendants."""
    children: dict[int, list[Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    found = list(children.get(ancestor, ()) if first is None else first)
    for process in found:
        found += children.get(process.pid, ())
    return found


def reap_orphans(ranks: Collection[int]) -> None:
    """Reap ended orphans, except ranks, whose exit codes other code waits for."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in ranks:
            return
        with suppress(ChildProcessError):
            os.waitpid(ended.si_pid, os.WNOHANG)


def _parse_stat_file(stat: Path) -> Process | None:
    try:
        words = stat.read_text(errors="replace").rpartition(")")[2].split()
        if words[0] in _DEAD:
            return None
        return Process(int(stat.parent.name), int(words[1]), int(words[3]), int(words[19]))
    except (OSError, ValueError, IndexError):
        return None


def _kill_process(process: Process) -> None:
    """Send SIGKILL to this process, never to a later one with its pid."""
    with suppress(OSError):  # it has exited, or now belongs to another user
        descriptor = os.pidfd_open(process.pid)
        try:
            now = _parse_stat_file(Path(f"/proc/{process.pid}/stat"))
            if now is not None and now.started == process.started:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
