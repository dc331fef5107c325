"""A daemon and what looks after it, as an init system would: it is started again whenever it ends, unless kept down."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.chaos.world.journal import Journal

AGAIN_S = 0.5  # between an end and the next start
TERMINATE_S = 30.0


class Daemon:
    """One program. Every start and end is written down, with whose doing the end was."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        journal: Journal,
        again_s: float = AGAIN_S,
    ) -> None:
        self.name = name
        self.log = log
        self._argv, self._env, self._journal, self._again_s = list(argv), dict(env), journal, again_s
        self._lock = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None
        self._down = self._ours = self._over = False
        self.exit_code: int | None = None

    def start(self) -> None:
        """Begin, and look after it from now on."""
        self._spawn()
        threading.Thread(target=self._look_after, name=self.name, daemon=True).start()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the running process, if there is one."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._journal.write("signals", daemon=self.name, signal=number.name, pid=self._process.pid)
                self._ours = self._ours or number in (signal.SIGKILL, signal.SIGTERM)
                self._process.send_signal(number)

    def kill_and_keep_down(self) -> None:
        """kill -9, and no new start before `let_up`."""
        with self._lock:
            self._down = True
        self.signal(signal.SIGKILL)

    def wait_until_gone(self) -> None:
        """Until a killed process has ended: at once, unless the machine is very busy."""
        process = self._process
        if process is not None:
            process.wait(TERMINATE_S)

    def let_up(self) -> None:
        """It may be started again."""
        with self._lock:
            self._down = False
            self._lock.notify_all()

    def kill_child(self, which: int) -> None:
        """kill -9 of one of the process's own children, if it has any."""
        pid = self.pid
        children = [] if pid is None else _children(pid)
        if children:
            child = children[which % len(children)]
            self._journal.write("signals", daemon=self.name, signal="SIGKILL", pid=child, child=True)
            os.kill(child, signal.SIGKILL)

    @property
    def pid(self) -> int | None:
        """Of the running process; None while there is none."""
        with self._lock:
            running = self._process is not None and self._process.poll() is None
            return self._process.pid if running and self._process is not None else None

    def end(self) -> int | None:
        """SIGTERM, then its exit code; a process that does not go within half a minute is killed, and the code is None."""
        with self._lock:
            self._over = True
            self._lock.notify_all()
            process = self._process
        if process is None:
            return self.exit_code
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            return process.wait(TERMINATE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None

    def _spawn(self) -> None:
        with self._lock, self.log.open("ab") as log:
            self._ours, self.exit_code = False, None
            self._process = subprocess.Popen(
                self._argv, env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
            self._journal.write("processes", daemon=self.name, event="started", pid=self._process.pid)

    def _look_after(self) -> None:
        while True:
            process = self._process
            assert process is not None
            self.exit_code = process.wait()
            with self._lock:
                self._journal.write(
                    "processes",
                    daemon=self.name,
                    event="ended",
                    pid=process.pid,
                    code=self.exit_code,
                    ours=self._ours or self._over,
                )
                if self._over or (self.name == "job" and self.exit_code == 0):
                    return
            time.sleep(self._again_s)
            with self._lock:
                self._lock.wait_for(lambda: self._over or not self._down)
                if self._over:
                    return
                self._spawn()


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
