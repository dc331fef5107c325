"""How the processes of one run wait for each other, and take turns where only one at a time may measure. Nothing is left on disk.

A name in the kernel's abstract socket space is held by one process at a time and vanishes with it: whoever binds that of the turn has it,
and each says by names of its own that it has come, and that it is not done.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator

_LOOK_AGAIN_S = 0.002


class TurnQueue:
    """One process among `count`, numbered `index`. All give the same `run`; by default what their parent is.

    In this order: `gather`, a `turn` or none, `scatter`.
    """

    def __init__(self, index: int, count: int, run: str = "") -> None:
        self._index, self._others = index, [other for other in range(count) if other != index]
        self._run = run or f"{os.getppid()}"
        self._here: socket.socket | None = None
        self._busy: socket.socket | None = None

    def __enter__(self) -> TurnQueue:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        """Others no longer find us."""
        for mark in (self._here, self._busy):
            if mark is not None:
                mark.close()

    def gather(self, patience_s: float) -> bool:
        """Wait until all have come; False if that takes too long."""
        self._busy = self._bound(f"busy-{self._index}")  # before the others can see that we have come
        self._here = self._bound(f"here-{self._index}")
        return self._wait(lambda other: self._is_there(f"here-{other}"), patience_s)

    def scatter(self, patience_s: float) -> bool:
        """Our turn is over: wait until all others' are; False if that takes too long. One that has ended needs none."""
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
        """A time in which no other has its turn; yields False if it could not be had, and goes on without."""
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
