"""The parent's side of the supervisor: starts programs, tracks their process ids, ends them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from healthctl.process_supervision.supervisor import Notice, ProgramExited, ProgramSpec, ProgramStarted, StopRequest

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from 3.11 on

START_DEADLINE_S = 20.0
END_DEADLINE_S = 30.0
POLL_S = 0.05


class ProgramError(RuntimeError):
    """A program could not be started or did not become ready; the message names its log."""


class SupervisedPrograms:
    """Programs under one supervisor. A context manager that ends all of them, with their children, on exit."""

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        log_dir.mkdir(parents=True, exist_ok=True)
        with (log_dir / "supervisor.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "healthctl.process_supervision.supervisor"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # the terminal's Ctrl-C is for the parent, which then closes the pipe
            )
        self._changed = threading.Condition()
        self._pids: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        self._exits: dict[str, ProgramExited] = {}
        self._reader = threading.Thread(target=self._read, name="supervisor", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(
        self, name: str, argv: list[str], *, env: dict[str, str], cwd: Path | None = None, restart: bool = False
    ) -> int:
        """Start a program and return its process id; its output goes to `NAME.log`.

        Raises:
            ProgramError: it cannot be executed, or the supervisor has died.
        """
        program = ProgramSpec(
            name=name,
            argv=argv,
            log=str(self.log(name)),
            env=env,
            cwd=str(cwd or Path.cwd()),
            restart=restart,
        )
        with self._changed:
            before = self._starts.get(name, 0)
            self._exits.pop(name, None)
            self._send(program)
            if not self._changed.wait_for(
                lambda: self._starts.get(name, 0) > before or name in self._exits, START_DEADLINE_S
            ):
                raise ProgramError(f"the supervisor did not start {name}; see {self.log('supervisor')}")
            if self._starts.get(name, 0) == before:
                raise ProgramError(self._exits[name].detail or f"{name} exited immediately; see {self.log(name)}")
            return self._pids.get(name, 0)

    def pid(self, name: str) -> int | None:
        """The current process id, or None while the program is down."""
        with self._changed:
            return self._pids.get(name)

    def starts(self, name: str) -> int:
        """How often the program was started."""
        with self._changed:
            return self._starts.get(name, 0)

    def exit_code(self, name: str) -> int | None:
        """The last exit code, negative for a signal; None while it runs."""
        with self._changed:
            exited = self._exits.get(name)
            return None if exited is None or name in self._pids else exited.code

    def kill(self, name: str) -> bool:
        """Send SIGKILL, as a test does; the supervisor restarts the program if configured."""
        pid = self.pid(name)
        if pid is None:
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def stop(self, name: str) -> None:
        """End one program permanently, with SIGTERM first."""
        self._send(StopRequest(name))

    def require_running(self, name: str) -> None:
        """Raise if the program has ended; the message contains its log's last line.

        Raises:
            ProgramError: it has ended.
        """
        if self.pid(name) is None:
            raise ProgramError(f"{name} ended: {read_last_line(self.log(name))} (complete log: {self.log(name)})")

    def log(self, name: str) -> Path:
        """The log file of the program."""
        return self.log_dir / f"{name}.log"

    def close(self) -> None:
        """End every program and all their descendants."""
        _close_pipe(self._process.stdin)
        try:
            self._process.wait(END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        _close_pipe(self._process.stdout)

    def _send(self, request: ProgramSpec | StopRequest) -> None:
        pipe = self._process.stdin
        if pipe is None:
            return
        try:
            pipe.write(msgspec.json.encode(request) + b"\n")
            pipe.flush()
        except (BrokenPipeError, ValueError):  # already ended, or already closed
            raise ProgramError(f"the supervisor has died; see {self.log('supervisor')}") from None

    def _read(self) -> None:
        decoder = msgspec.json.Decoder(Notice)
        pipe = self._process.stdout
        for line in pipe or ():
            notice = decoder.decode(line)
            with self._changed:
                if isinstance(notice, ProgramStarted):
                    self._pids[notice.name] = notice.pid
                    self._starts[notice.name] = self._starts.get(notice.name, 0) + 1
                else:
                    self._pids.pop(notice.name, None)
                    self._exits[notice.name] = notice
                self._changed.notify_all()


def read_last_line(path: Path) -> str:
    """The last non-empty line of a log, for an error message."""
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except OSError as error:
        return f"no log ({error})"
    return lines[-1] if lines else "the log is empty"


def _close_pipe(pipe: IO[bytes] | None) -> None:
    if pipe is not None and not pipe.closed:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()


def wait_until_ready(ready: Callable[[], bool], deadline_s: float, what: str | Callable[[], str]) -> None:
    """Poll until `ready()`.

    Raises:
        ProgramError: not ready within `deadline_s` seconds; the message contains `what`, which may be a function that
            describes the state at that time.
    """
    end = time.monotonic() + deadline_s
    while not ready():
        if time.monotonic() > end:
            raise ProgramError(f"waited {deadline_s:g} s for {what if isinstance(what, str) else what()}")
        time.sleep(POLL_S)
