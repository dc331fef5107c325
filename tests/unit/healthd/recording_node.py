"""What tests of the disk share: a recorder whose writer they can hold up."""

from __future__ import annotations

import threading
from pathlib import Path

from healthd.finding_recorder import FindingRecorder
from healthd.findings.facts import Raise
from healthd.findings.finding_ledger import FindingLedger
from healthd.orders.order_store import OrderStore
from healthd.storage.database_writer import DatabaseWriter
from healthd.storage.node_database import NodeDatabase
from healthd.storage.pending_changes import PendingChanges
from vocabulary.clock import ManualClock
from vocabulary.finding import Finding, Severity
from vocabulary.identity import Component, ComponentKind

NOW = 1_700_000_000.0
LONG_S = 60.0


class Node:
    """A recorder and its committer's thread, which `hold` stops before its next write."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.database = NodeDatabase(path, NOW)
        self.committer = DatabaseWriter(self.database, self.clock)
        self.waiting = PendingChanges(self.committer)
        self.orders = OrderStore(self.committer, "n1")
        self.ledger = FindingLedger("n1", "boot", self.database.active())
        self.woken = threading.Semaphore(0)
        self.recorder = FindingRecorder(
            self.ledger, self.committer, self.waiting, self.orders, NOW, wake=self.woken.release
        )
        self._holds: list[threading.Event] = []
        self.committer.start()

    def hold(self) -> None:
        """A disk that hangs."""
        free = threading.Event()
        self._holds.append(free)
        self.committer.submit(lambda _: free.wait(LONG_S))

    def hold_next_write(self) -> None:
        """The disk takes the writes handed over so far, and hangs at the next one."""
        written = self.committer.submit(lambda _: None)
        before, self._holds = self._holds, []
        self.hold()
        for free in before:
            free.set()
        written.result(LONG_S)

    def let_go(self) -> None:
        """It answers again; everything handed over so far is written when this returns."""
        self.release()
        self.committer.submit(lambda _: None).result(LONG_S)

    def release(self) -> None:
        """It answers again."""
        while self._holds:
            self._holds.pop().set()

    def fault(self, code: str, severity: Severity = Severity.FATAL) -> None:
        component = Component(ComponentKind.GPU, pci="0001:00:00.0")
        fact = Raise(check="xid", code=code, component=component, severity=severity, summary="s", at=NOW, event=True)
        self.ledger.apply([fact])

    def commit_if_due(self, after_s: float = 0.0) -> bool:
        self.clock.advance(after_s)
        return self.recorder.commit_if_due(NOW, self.clock.monotonic())

    def settle_all(self) -> None:
        """Until nothing is under way and nothing is due."""
        self.let_go()
        for _ in range(4):
            self.commit_if_due()
            self.committer.submit(lambda _: None).result(LONG_S)
        self.commit_if_due()

    @property
    def shown(self) -> list[str]:
        return [finding.kind for finding in self.recorder.shown()]


def finding(number: int) -> Finding:
    return Finding(
        id=f"f{number}", node="n1", check="xid", code="79", component=Component(ComponentKind.HOST),
        severity=Severity.FATAL, summary="s", first_seen=NOW, last_seen=NOW, origin=str(number), active=False,
    )  # fmt: skip
