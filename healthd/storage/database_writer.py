"""The thread that owns the database. Nobody else waits for the disk, unless they choose to.

Writes are done one after another, in the order in which they were handed over, each durable before the next begins. A
disk that hangs stops this thread alone; how long its oldest write has been waiting can be asked at any time.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from queue import SimpleQueue
from typing import TypeVar

import msgspec

from healthd.storage.outbox import Outbox, OutboxCorrupt, OutboxFull
from vocabulary.clock import Clock

OVERDUE_S = 2.0

T = TypeVar("T")


class CommitOverdue(OutboxFull):
    """The disk has not taken a write in time. It is still under way, and may yet succeed."""


class LastCommit(msgspec.Struct, frozen=True):
    """The newest write that reached the disk: when, in UTC seconds, and how long it took."""

    at: float
    seconds: float


class DatabaseWriter:
    """Takes writes from any thread. Until `start`, a write is done at once by whoever hands it over."""

    def __init__(self, outbox: Outbox, clock: Clock) -> None:
        self.outbox = outbox
        self._clock = clock
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._since: deque[float] = deque()  # when each write that has not ended was handed over
        self._thread: threading.Thread | None = None
        self.last: LastCommit | None = None
        self.corrupt: OutboxCorrupt | None = None  # found by any write; the recorder makes it good

    def start(self) -> None:
        """From now on a thread of its own writes."""
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    def submit(self, write: Callable[[Outbox], T]) -> Future[T]:
        """Have something written; never waits. The future's exception may be OutboxFull or OutboxCorrupt."""
        future: Future[T] = Future()
        self._since.append(self._clock.monotonic())

        def run() -> None:
            self._carry_out(write, future)

        if self._thread is None:
            run()
        else:
            self._queue.put(run)
        return future

    def wait(self, future: Future[T]) -> T:
        """Wait for a write, but not for a disk that hangs.

        Raises:
            CommitOverdue: it was not written in time, and may still be.
            OutboxFull, OutboxCorrupt: nothing of it was written.
        """
        now = self._clock.monotonic()
        with contextlib.suppress(FutureTimeoutError):
            return future.result(max(0.0, OVERDUE_S - self.waited_s(now)))
        raise CommitOverdue(f"{self.outbox.path}: a write has not ended within {OVERDUE_S:g} s; check the disk")

    def waited_s(self, monotonic: float) -> float:
        """For how long the oldest write that has not ended has been waiting."""
        try:
            return monotonic - self._since[0]
        except IndexError:
            return 0.0

    def close(self, within_s: float) -> bool:
        """Write what was handed over, and end; whether all of it was written in time."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(within_s)
            if self._thread.is_alive():
                return False
        self.outbox.close()
        return True

    def _run(self) -> None:
        while (run := self._queue.get()) is not None:
            run()

    def _carry_out(self, write: Callable[[Outbox], T], future: Future[T]) -> None:
        began = self._clock.monotonic()
        try:
            result = write(self.outbox)
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever asked, and this thread must go on
            if isinstance(error, OutboxCorrupt):
                self.corrupt = error
            self._since.popleft()
            future.set_exception(error)
            return
        self._since.popleft()
        self.last = LastCommit(self._clock.wall(), self._clock.monotonic() - began)
        future.set_result(result)
