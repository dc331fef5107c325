"""The threads beside the main loop, as they are wired together."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.config import Config
from healthd.daemon_status import Status
from healthd.host import Host
from healthd.orders.order_store import OrderStore
from healthd.orders.order_task import HealthVerification
from healthd.preflight_reports.preflight_history import PreflightHistory
from healthd.service_threads import ServiceThreads
from healthd.storage.database_writer import OVERDUE_S, DatabaseWriter
from healthd.storage.node_database import DatabaseFull, NodeDatabase
from healthd.storage.pending_changes import PendingChanges
from healthd.swap_reports.swap_endpoint import SwapEndpoint
from vocabulary.clock import ManualClock
from vocabulary.messages.evidence_bundle import EvidenceBundle
from vocabulary.messages.telemetry_messages import TelemetryPart
from vocabulary.order import Order, OrderKind, OrderState

NOW = 1_700_000_000.0
# it names no GPU, so the performer refuses it at its first look
ORDER = Order(
    id="o1", kind=OrderKind.RESET_GPU, node="n1", incident="i", reason="r", issued_at=NOW, expires_at=NOW + 60
)


class Loop:
    """A main loop at rest."""

    def __init__(self) -> None:
        self.preflights = PreflightHistory()
        self.swaps = SwapEndpoint(dict, ManualClock())
        self.status = Status(node="n1", boot_id="b", at=NOW)

    def wake(self) -> None:
        """Look around now."""

    def evidence(self, order: Order | None = None) -> EvidenceBundle:
        raise NotImplementedError

    def telemetry(self, back_s: float) -> TelemetryPart:
        return TelemetryPart(back_s, ())

    def take_proof(self, proof: HealthVerification) -> None:
        raise NotImplementedError

    def rest_nvml(self, wanted: bool) -> bool:  # noqa: FBT001 - as the protocol has it
        return wanted


class Node:
    """The services without their threads; until `Committer.start`, the disk takes each write at once."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock(NOW)
        self.database = NodeDatabase(directory / "healthd.db", NOW)
        self.committer = DatabaseWriter(self.database, self.clock)
        self.orders = OrderStore(self.committer, "n1")
        config = Config(node="n1", beacon_dir=directory, state_dir=directory)
        host, waiting = Host(clock=self.clock), PendingChanges(self.committer)
        self.services = ServiceThreads(config, host, waiting, self.orders, Loop())

    def perform(self) -> None:
        """One look of the performer; a disk that does not take an answer is no end of it."""
        with contextlib.suppress(DatabaseFull):
            self.services._performer.tick()

    def reports_now(self) -> bool:
        """Whether the uplink was woken since this was last asked."""
        woken = self.services._uplink._news.is_set()
        self.services._uplink._news.clear()
        return woken

    def unsent(self) -> list[OrderState]:
        return [answer.state for answer in self.orders.unsent(0)]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    assert node.orders.receive(ORDER, NOW)
    yield node
    node.database.close()


def test_an_answer_goes_to_the_centre_at_once(node: Node) -> None:
    node.perform()
    assert (node.reports_now(), node.unsent()) == (True, [OrderState.REFUSED])


def test_an_answer_that_the_disk_took_late_goes_to_the_centre_at_once(node: Node) -> None:
    free = threading.Event()
    node.committer.start()
    node.committer.submit(lambda _: free.wait(60))
    node.clock.advance(OVERDUE_S + 1)
    node.perform()
    node.reports_now()
    assert node.unsent() == [OrderState.RECEIVED], "the end is not durable yet"
    free.set()
    node.committer.submit(lambda _: None).result(60)
    assert (node.reports_now(), node.unsent()) == (True, [OrderState.REFUSED])


def test_an_answer_that_the_disk_took_at_a_second_try_goes_to_the_centre_at_once(node: Node) -> None:
    node.orders.mark_sent(node.orders.unsent(0)[0])
    node.database.connection.execute("pragma query_only = on")
    for _ in range(3):
        node.perform()
        node.clock.advance(60)
        assert (node.reports_now(), node.unsent()) == (False, []), "there is nothing to send"
    node.database.connection.execute("pragma query_only = off")
    node.perform()
    assert (node.reports_now(), node.unsent()) == (True, [OrderState.REFUSED])
