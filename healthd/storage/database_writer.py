"""The thread that owns the database. Other threads wait for the disk only if they choose to.

Writes run one after another, in submission order, each durable before the next begins. A hanging disk stops this thread
alone; the waiting time of its oldest write can be read at any time.
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

from healthd.storage.node_database import DatabaseCorrupt, DatabaseFull, NodeDatabase
from vocabulary.clock import Clock

OVERDUE_S = 2.0

T = TypeVar("T")


class CommitOverdue(DatabaseFull):
    """The disk has not finished a write in time. It is still in progress, and may yet succeed."""


class LastCommit(msgspec.Struct, frozen=True):
    """The newest write that reached the disk: when, in UTC seconds, and how long it took."""

    at: float
    seconds: float


class DatabaseWriter:
    """Accepts writes from any thread. Until `start`, the submitting thread writes at once."""

    def __init__(self, database: NodeDatabase, clock: Clock) -> None:
        self.database = database
        self._clock = clock
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._since: deque[float] = deque()  # submission time of each unfinished write
        self._thread: threading.Thread | None = None
        self.last: LastCommit | None = None
        self.corrupt: DatabaseCorrupt | None = None  # found by any write; the recorder replaces the database

    def start(self) -> None:
        """Start the writer's thread."""
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    def submit(self, write: Callable[[NodeDatabase], T]) -> Future[T]:
        """Submit a write; never waits. The future's exception may be DatabaseFull or DatabaseCorrupt."""
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
        """Wait for a write, but not for a hanging disk.

        Raises:
            CommitOverdue: it was not written in time, and may still be.
            DatabaseFull, DatabaseCorrupt: nothing of it was written.
        """
        now = self._clock.monotonic()
        with contextlib.suppress(FutureTimeoutError):
            return future.result(max(0.0, OVERDUE_S - self.waited_s(now)))
        raise CommitOverdue(f"{self.database.path}: a write has not ended within {OVERDUE_S:g} s; check the disk")

    def waited_s(self, monotonic: float) -> float:
        """Return for how long the oldest unfinished write has been waiting."""
        try:
            return monotonic - self._since[0]
        except IndexError:
            return 0.0

    def close(self, within_s: float) -> bool:
        """Finish the submitted writes and end; return whether all of them finished in time."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(within_s)
            if self._thread.is_alive():
                return False
        self.database.close()
        return True

    def _run(self) -> None:
        while (run := self._queue.get()) is not None:
            run()

    def _carry_out(self, write: Callable[[NodeDatabase], T], future: Future[T]) -> None:
        began = self._clock.monotonic()
        try:
            result = write(self.database)
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever asked, and this thread must go on
            if isinstance(error, DatabaseCorrupt):
                self.corrupt = error
            self._since.popleft()
            future.set_exception(error)
            return
        self._since.popleft()
        self.last = LastCommit(self._clock.wall(), self._clock.monotonic() - began)
        future.set_result(result)
