"""What the uplink says, in which order, what it takes for heard, and how long it waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from healthd.config import RemediatorConfig
from healthd.controller.controller_client import (
    ControllerClient,
    ControllerDenied,
    ControllerError,
    ControllerUnreachable,
    RequestRejected,
)
from healthd.daemon_status import Status
from healthd.orders.order_store import OrderStore
from healthd.reporting.report_uplink import URGENT_PAUSE_S_MAX, ReportUplink
from healthd.reporting.telemetry_subscription import TelemetrySubscription
from healthd.storage.database_writer import DatabaseWriter
from healthd.storage.node_database import NodeDatabase
from healthd.storage.pending_changes import PendingChanges
from tests.unit.healthd.test_controller_client import finding
from vocabulary.clock import ManualClock
from vocabulary.messages.heartbeat import Heartbeat, decode_heartbeat
from vocabulary.messages.swap_messages import JobSwap
from vocabulary.messages.telemetry_messages import TelemetryPart
from vocabulary.messages.wire import Report, ReportReply
from vocabulary.order import Order, OrderKind, OrderUpdate


class Node:
    """An uplink without its thread; five findings wait, which are fatal and active."""

    def __init__(self, place: Path) -> None:
        self.database = NodeDatabase(place / "db", 1.0)
        findings = [finding(number) for number in range(5)]
        self.database.commit(findings)
        clock, committer = ManualClock(), DatabaseWriter(self.database, ManualClock())
        self.waiting, self.orders = PendingChanges(committer), OrderStore(committer, "n1")
        self.status = Status(
            node="n1", boot_id="b", at=1.0, newest_change=self.waiting.newest, findings=tuple(findings)
        )
        self.uplink = ReportUplink(
            config=RemediatorConfig(url="http://x", token_file=place / "token"),
            agent="a",
            waiting=self.waiting,
            orders=self.orders,
            status=lambda: self.status,
            clock=clock,
            watched=TelemetrySubscription(lambda back_s: TelemetryPart(back_s, ()), clock),
        )

    def is_urgent(self) -> bool:
        """Whether something urgent ends a pause now."""
        self.uplink._hurry.clear()
        self.uplink.look_after_urgent()
        return self.uplink._hurry.is_set()


class Heard(ControllerClient):
    """Takes what it is told, up to a number of changes; wants no answer to some orders."""

    knows_heartbeats = False

    def __init__(self, acknowledges: int = 10**18, unwanted: str = "") -> None:
        self.acknowledges, self.unwanted = acknowledges, unwanted
        self.reports: list[Report] = []
        self.heartbeats: list[Heartbeat] = []
        self.answers: list[str] = []

    def report(self, report: Report) -> ReportReply:
        self.reports.append(report)
        return ReportReply(self.acknowledges, 1, base=report.seq if self.knows_heartbeats else 0)

    def heartbeat(self, packed: bytes) -> ReportReply:
        heartbeat = decode_heartbeat(packed)
        if not self.reports or heartbeat.base != self.reports[-1].seq:
            raise RequestRejected("409")
        self.heartbeats.append(heartbeat)
        return ReportReply(0, 1)

    def answer(self, update: OrderUpdate) -> None:
        if update.id == self.unwanted:
            raise RequestRejected("404")
        self.answers.append(update.id)

    def cut_if_silent(self, patience_s: float) -> bool:
        del patience_s
        return False


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.database.close()


def test_a_change_counts_as_heard_only_if_it_was_told(node: Node) -> None:
    centre = Heard()
    node.uplink._batch = 2
    node.uplink.send(centre)
    assert [c.finding.id for report in centre.reports for c in report.changes] == [f"f{number}" for number in range(5)]
    numbers = [report.seq for report in centre.reports]
    assert numbers == sorted(set(numbers)), "a report that comes twice is known by its number"
    assert node.database.waiting() == 0


def test_every_report_repeats_the_swaps_of_the_jobs_launched_here(node: Node) -> None:
    swaps = (JobSwap(job="j", attempt=1, at=5.0, outcome="swapped"),)
    centre = Heard()
    node.uplink.send(centre)
    node.uplink.swaps = lambda: swaps
    node.uplink.send(centre)
    node.uplink.send(centre)
    assert [report.swaps for report in centre.reports] == [(), swaps, swaps]


def test_without_news_a_node_sends_heartbeats_to_a_centre_that_knows_them(node: Node) -> None:
    older = Heard()
    node.uplink.send(older)
    node.uplink.send(older)
    assert (len(older.reports), older.heartbeats) == (2, [])
    centre = Heard()
    centre.knows_heartbeats = True
    node.uplink.send(centre)
    node.uplink.send(centre)
    node.uplink.send(centre)
    assert (len(centre.reports), [beat.base for beat in centre.heartbeats]) == (1, [centre.reports[0].seq] * 2)
    node.status = replace(node.status, findings=node.status.findings[1:])
    node.uplink.send(centre)
    assert (len(centre.reports), len(centre.heartbeats)) == (2, 2), "news goes in a whole report"
    other = Heard()
    other.knows_heartbeats = True
    node.uplink.send(other)
    assert (len(other.reports), other.heartbeats) == (1, []), "another leader has no report yet: it gets a whole one"
    node.uplink.send(other)
    assert len(other.heartbeats) == 1


def test_a_change_counts_as_heard_only_if_the_centre_says_so(node: Node) -> None:
    first = node.waiting.changes(1, node.waiting.newest)[0]
    node.uplink.send(Heard(acknowledges=first.seq))
    assert node.waiting.count() == node.database.waiting() == 4


def test_an_answer_that_is_not_wanted_blocks_no_other(node: Node) -> None:
    for name in ("o1", "o2", "o3"):
        order = Order(id=name, kind=OrderKind.ABORT, node="n1", incident="i", reason="r", issued_at=1.0, expires_at=9.0)
        assert node.orders.receive(order, 1.0)
    centre = Heard(unwanted="o2")
    node.uplink.send(centre)
    assert centre.answers == ["o1", "o3"]
    assert node.orders.unsent(node.waiting.newest) == [], "nor is it told again"


def test_a_fatal_finding_is_urgent_until_the_centre_has_heard_of_it_or_refused_it(node: Node) -> None:
    assert not node.is_urgent(), "before there is a connection"
    centre = node.uplink._controller = Heard()
    assert node.is_urgent()
    node.uplink._unwanted = frozenset(f"f{number}" for number in range(5))
    assert not node.is_urgent()
    node.uplink._unwanted = frozenset()
    node.uplink.send(centre)
    assert not node.is_urgent()


class Recorded(threading.Event):
    """Does not wait, and remembers for how long it was to."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return self.is_set()


@pytest.mark.parametrize(
    ("error", "always_s", "unless_urgent_s"),
    [
        (ControllerUnreachable("no answer"), URGENT_PAUSE_S_MAX, 30.0 - URGENT_PAUSE_S_MAX),
        (ControllerUnreachable("busy", retry_after_s=20.0), 30.0, None),
        (ControllerDenied("no token"), 30.0, None),
        (RequestRejected("bad"), 30.0, None),
    ],
)
def test_what_is_urgent_shortens_no_pause_that_the_centre_or_a_person_must_end(
    node: Node, error: ControllerError, always_s: float, unless_urgent_s: float | None
) -> None:
    stop, hurry = node.uplink._stop, node.uplink._hurry = Recorded(), Recorded()
    node.uplink._pause(30.0, error)
    assert (stop.waits, hurry.waits) == ([always_s], [] if unless_urgent_s is None else [unless_urgent_s])
