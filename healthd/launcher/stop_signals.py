"""External stop requests: a signal to the launcher, or a notice file. Both become the same order to all ranks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType

from healthd.launcher.decisions.relaunch_policy import REQUEUE_EXIT
from healthd.trainer.termination_notices import read_notice_signals

FILE_POLL_SECONDS = 0.5
SIGNALLED = 128  # plus the number: the shell's exit code for a program ended by a signal


class StopSignals:
    """Records signals while entered. Uses a plain flag: an event's lock could be held when the handler runs.

    A notice file counts when it appears or changes after that: an old one belongs to an earlier end.
    """

    def __init__(self, notice_file: Path | None = None, signals: Sequence[int] | None = None) -> None:
        self._signals = {signal.SIGINT, *(read_notice_signals(os.environ) if signals is None else signals)}
        self._file = notice_file
        self._got = 0
        self._noticed = False
        self._previous: dict[int, object] = {}
        self._looked_at = 0.0
        self._mark = 0

    def asked(self) -> bool:
        """Return whether the job must end."""
        if self._file is not None and not self._noticed:
            now = time.monotonic()
            if now >= self._looked_at + FILE_POLL_SECONDS:
                self._looked_at = now
                self._noticed = _modification_time(self._file) not in (0, self._mark)
        return self._noticed or self._got != 0

    @property
    def again(self) -> bool:
        """Return whether to requeue the job: its machine is reclaimed, the job itself is still wanted."""
        return self._noticed and self._got == 0

    @property
    def code(self) -> int:
        """The launcher's exit code."""
        return REQUEUE_EXIT if self.again else SIGNALLED + self._got

    @property
    def why(self) -> str:
        """The reason, for people."""
        return f"the notice in {self._file}" if self.again else f"signal {self._got}"

    def __enter__(self) -> StopSignals:  # noqa: PYI034 - Self is Python 3.11's
        self._mark = _modification_time(self._file) if self._file is not None else 0
        self._previous = {number: signal.signal(number, self._note) for number in self._signals}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # it came from there

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._got = number


def _modification_time(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
