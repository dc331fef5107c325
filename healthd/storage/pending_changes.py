"""The changes not yet delivered to the controller, in memory: reporting never waits for a disk.

The oldest are held; later ones are read from the database as they go. A change is here only once it is durable, and
leaves as soon as the controller has it; the database deletes it a moment later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import islice

from healthd.storage.database_writer import DatabaseWriter
from healthd.storage.node_database import CommitResult, NodeDatabase
from vocabulary.messages.message_bounds import CHANGES_PER_REPORT_MAX
from vocabulary.messages.wire import FindingChange

HELD_MAX = 2 * CHANGES_PER_REPORT_MAX

_log = logging.getLogger("healthd")


class PendingChanges:
    """Callable from any thread. The lock is held for operations in memory only.

    `newest` is the number of the newest change, `rejected` counts those the controller rejected. `on_more` is called
    when changes that were not in memory have been read.
    """

    def __init__(self, committer: DatabaseWriter) -> None:
        self._committer = committer
        self._lock = threading.Lock()
        self._held: dict[str, FindingChange] = {}  # by finding, oldest first
        self._whole = True  # all pending changes are held
        self._count = 0
        self._acknowledged = 0
        self._aside: set[int] = set()
        self.rejected = 0
        self.newest = 0
        self.on_more: Callable[[], None] = lambda: None
        self._read(committer.database)

    def count(self) -> int:
        """Return how many are pending."""
        return self._count

    def changes(self, limit: int, up_to: int) -> tuple[FindingChange, ...]:
        """Return the oldest, none newer than number `up_to`."""
        with self._lock:
            return tuple(change for change in islice(self._held.values(), limit) if change.seq <= up_to)

    def acknowledge(self, seq: int) -> None:
        """Remove every change up to `seq`, which the controller has durably stored."""
        with self._lock:
            self._acknowledged = max(self._acknowledged, seq)
            self._drop([finding for finding, change in self._held.items() if change.seq <= seq])
        self._forget(lambda database: database.acknowledge(seq))

    def set_aside(self, seq: int) -> None:
        """Drop a change that the controller rejects for good; the finding stays as it is."""
        with self._lock:
            self._aside.add(seq)
            self._drop([finding for finding, change in self._held.items() if change.seq == seq])
            self.rejected += 1

        def write(database: NodeDatabase) -> None:
            database.set_aside(seq)
            self._aside.discard(seq)

        self._forget(write)

    def add(self, stored: CommitResult, database: NodeDatabase) -> None:
        """Add the changes of a commit. For the writer's thread, like the methods below."""
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
            self._read(database)

    def begin_anew(self, database: NodeDatabase) -> None:
        """Start over with a fresh database: its numbers are unrelated to earlier ones."""
        self._acknowledged = self.newest = 0
        self._read(database)

    def _read(self, database: NodeDatabase) -> None:
        changes, count = database.changes(HELD_MAX), database.waiting()
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

    def _forget(self, write: Callable[[NodeDatabase], None]) -> None:
        def forget(database: NodeDatabase) -> bool:
            write(database)
            short = not self._whole and len(self._held) < CHANGES_PER_REPORT_MAX
            if short:
                self._read(database)
            return short

        self._committer.submit(forget).add_done_callback(self._forgotten)

    def _forgotten(self, future: Future[bool]) -> None:
        """Check that the database deleted them. If not, the controller gets them again, which is harmless."""
        error = future.exception()
        if error is not None:
            _log.warning("delivered changes cannot be deleted yet: %s", error)
        elif future.result():
            self.on_more()
