"""Synchronizes the processes of one run, and gives turns where only one may measure at a time. Leaves nothing on disk.

One process at a time can hold a name in the kernel's abstract socket space, and it disappears with the process. The turn is
such a name, and each process has further names to signal that it has arrived, and that it is not finished.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator

_LOOK_AGAIN_S = 0.002


class TurnQueue:
    """One process among `count`, numbered `index`. All use the same `run`; by default their parent's id.

    Call in this order: `gather`, a `turn` or none, `scatter`.
    """

    def __init__(self, index: int, count: int, run: str = "") -> None:
        self._index, self._others = index, [other for other in range(count) if other != index]
        self._run = run or f"{os.getppid()}"
        self._here: socket.socket | None = None
        self._busy: socket.socket | None = None

    def __enter__(self) -> TurnQueue:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        """Remove this process's names."""
        for mark in (self._here, self._busy):
            if mark is not None:
                mark.close()

    def gather(self, patience_s: float) -> bool:
        """Wait until all have arrived; False on timeout."""
        self._busy = self._bound(f"busy-{self._index}")  # before the others can see this process
        self._here = self._bound(f"here-{self._index}")
        return self._wait(lambda other: self._is_there(f"here-{other}"), patience_s)

    def scatter(self, patience_s: float) -> bool:
        """End this process's turn: wait until all others are finished; False on timeout. Ended processes do not count."""
        if self._busy is not None:
            self._busy.close()
        return self._wait(lambda other: not self._is_there(f"busy-{other}"), patience_s)

    def _wait(self, until_of: Callable[[int], bool], patience_s: float) -> bool:
        missing, until = self._others, time.monotonic() + patience_s
        while missing := [other for other in missing if not until_of(other)]:
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK_AGAIN_S)
        return True

    @contextlib.contextmanager
    def turn(self, patience_s: float) -> Iterator[bool]:
        """Hold the turn exclusively; yields False if it could not be obtained, and continues without it."""
        until = time.monotonic() + patience_s
        while (mark := self._bound("turn")) is None and time.monotonic() < until:
            time.sleep(_LOOK_AGAIN_S)
        try:
            yield mark is not None
        finally:
            if mark is not None:
                mark.close()

    def _name(self, what: str) -> str:
        return f"\0gpu-preflight-{os.getuid()}-{self._run}-{what}"

    def _bound(self, what: str) -> socket.socket | None:
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mark.bind(self._name(what))
        except OSError:
            mark.close()
            return None
        return mark

    def _is_there(self, what: str) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asker:
            return asker.connect_ex(self._name(what)) == 0
