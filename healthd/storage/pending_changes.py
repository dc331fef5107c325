"""The changes that wait for the centre, in memory: whoever reports waits for no disk.

The oldest are held; what is behind them is read from the database as they go. A change is in here only once it is
durable, and leaves as soon as the centre has it; the database forgets it a moment later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import islice

from healthd.storage.database_writer import DatabaseWriter
from healthd.storage.outbox import CommitResult, Outbox
from vocabulary.messages.message_bounds import CHANGES_PER_REPORT_MAX
from vocabulary.messages.wire import FindingChange

HELD_MAX = 2 * CHANGES_PER_REPORT_MAX

_log = logging.getLogger("healthd")


class PendingChanges:
    """Callable from any thread. The lock is held for moves in memory only.

    `newest` is the number of the newest change, `rejected` counts those the centre did not want. `on_more` is called when
    changes that were not held in memory have been read.
    """

    def __init__(self, committer: DatabaseWriter) -> None:
        self._committer = committer
        self._lock = threading.Lock()
        self._held: dict[str, FindingChange] = {}  # by finding, oldest first
        self._whole = True  # nothing waits that is not held
        self._count = 0
        self._acknowledged = 0
        self._aside: set[int] = set()
        self.rejected = 0
        self.newest = 0
        self.on_more: Callable[[], None] = lambda: None
        self._read(committer.outbox)

    def count(self) -> int:
        """How many wait."""
        return self._count

    def changes(self, limit: int, up_to: int) -> tuple[FindingChange, ...]:
        """The oldest, none newer than number `up_to`."""
        with self._lock:
            return tuple(change for change in islice(self._held.values(), limit) if change.seq <= up_to)

    def acknowledge(self, seq: int) -> None:
        """The centre has durably stored every change up to `seq`."""
        with self._lock:
            self._acknowledged = max(self._acknowledged, seq)
            self._drop([finding for finding, change in self._held.items() if change.seq <= seq])
        self._forget(lambda outbox: outbox.acknowledge(seq))

    def set_aside(self, seq: int) -> None:
        """The centre does not want this change, ever; the finding stays as it is."""
        with self._lock:
            self._aside.add(seq)
            self._drop([finding for finding, change in self._held.items() if change.seq == seq])
            self.rejected += 1

        def write(outbox: Outbox) -> None:
            outbox.set_aside(seq)
            self._aside.discard(seq)

        self._forget(write)

    def add(self, stored: CommitResult, outbox: Outbox) -> None:
        """A commit added these. For the committer's thread, as are the others below."""
        with self._lock:
            for change in stored.changes:
                self._held.pop(change.finding.id, None)
            self.newest = max([self.newest, *(change.seq for change in stored.changes)])
            if self._whole:
                room = HELD_MAX - len(self._held)
                self._held |= {change.finding.id: change for change in stored.changes[:room]}
                self._count = len(self._held) + len(stored.changes[room:])
                self._whole = len(stored.changes) <= room
            else:
                self._count += len(stored.changes) - stored.replaced
        if stored.pruned:
            self._read(outbox)

    def begin_anew(self, outbox: Outbox) -> None:
        """The database was replaced by a fresh one: its numbers have nothing to do with those before."""
        self._acknowledged = self.newest = 0
        self._read(outbox)

    def _read(self, outbox: Outbox) -> None:
        changes, count = outbox.changes(HELD_MAX), outbox.waiting()
        with self._lock:
            behind = [c for c in changes if c.seq > self._acknowledged and c.seq not in self._aside]
            self._held = {change.finding.id: change for change in behind}
            self._count = count - (len(changes) - len(behind))
            self._whole = self._count == len(behind)
            self.newest = max([self.newest, *(change.seq for change in behind)])

    def _drop(self, findings: Sequence[str]) -> None:
        for finding in findings:
            del self._held[finding]
        self._count -= len(findings)

    def _forget(self, write: Callable[[Outbox], None]) -> None:
        def forget(outbox: Outbox) -> bool:
            write(outbox)
            short = not self._whole and len(self._held) < CHANGES_PER_REPORT_MAX
            if short:
                self._read(outbox)
            return short

        self._committer.submit(forget).add_done_callback(self._forgotten)

    def _forgotten(self, future: Future[bool]) -> None:
        """Were it not forgotten, the centre would be told once more, which does no harm."""
        error = future.exception()
        if error is not None:
            _log.warning("what the centre has taken cannot be forgotten yet: %s", error)
        elif future.result():
            self.on_more()
