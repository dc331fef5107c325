"""While somebody looks: what reports carry then, how often they go, and that it ends by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import UNSET

from healthd.config import RemediatorConfig
from healthd.controller.controller_client import RequestRejected
from healthd.daemon_status import Status
from healthd.orders.order_inbox import OrderInbox
from healthd.orders.order_store import OrderStore
from healthd.reporting.report_uplink import ReportUplink
from healthd.reporting.telemetry_subscription import REPORTS_APART_S, TelemetrySubscription
from healthd.storage.database_writer import DatabaseWriter
from healthd.storage.node_database import NodeDatabase
from healthd.storage.pending_changes import PendingChanges
from vocabulary.clock import ManualClock
from vocabulary.messages.telemetry_messages import REQUEST_S_MAX, TelemetryPart, TelemetryRequest
from vocabulary.messages.wire import ReceivedOrders, Report, ReportReply, decode_message

USUAL_S = 10.0
CONFIG = RemediatorConfig(url="http://x", token_file=Path("token"))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def watched(clock: ManualClock) -> TelemetrySubscription:
    """Its parts say by their clock how far back they were asked to go."""
    return TelemetrySubscription(lambda back_s: TelemetryPart(back_s, ()), clock)


def back_s(watched: TelemetrySubscription) -> float | None:
    told = watched.told()
    return None if told is UNSET else decode_message(bytes(told), TelemetryPart).monotonic


def test_without_a_wish_nothing_is_carried(watched: TelemetrySubscription) -> None:
    assert (back_s(watched), watched.interval_s(USUAL_S)) == (None, USUAL_S)


def test_a_wish_goes_further_back_the_older_it_is_and_ends(watched: TelemetrySubscription, clock: ManualClock) -> None:
    watched.take(TelemetryRequest(lasts_s=60, back_s=30))
    assert (back_s(watched), watched.interval_s(USUAL_S)) == (30, REPORTS_APART_S)
    assert watched.interval_s(1.0) == 1.0
    clock.advance(59)
    assert back_s(watched) == 89
    clock.advance(1)
    assert (back_s(watched), watched.interval_s(USUAL_S)) == (None, USUAL_S)


def test_a_mistake_in_what_is_only_looked_at_keeps_no_report_from_going(clock: ManualClock) -> None:
    def part(_back_s: float) -> TelemetryPart:
        raise OverflowError

    watched = TelemetrySubscription(part, clock)
    watched.take(TelemetryRequest(lasts_s=60))
    assert watched.told() is UNSET
    assert watched.interval_s(USUAL_S) == USUAL_S


def test_no_wish_lasts_for_ever(watched: TelemetrySubscription, clock: ManualClock) -> None:
    watched.take(TelemetryRequest(lasts_s=1e30))
    clock.advance(REQUEST_S_MAX)
    assert back_s(watched) is None


def test_an_answer_that_is_older_than_the_wish_does_not_end_it(watched: TelemetrySubscription) -> None:
    watched.take(TelemetryRequest(lasts_s=60))
    watched.apply_reply(UNSET, None)
    told = watched.told()
    assert told is not UNSET
    watched.apply_reply(told, TelemetryRequest(lasts_s=60, back_s=30))
    assert back_s(watched) == 30
    watched.apply_reply(watched.told(), None)
    assert back_s(watched) is None


# -- the uplink and the inbox ------------------------------------------------------------------------------------------


class Asking:
    """A controller that answers every report with a wish; with `picky`, it wants no telemetry all the same."""

    def __init__(self, *, picky: bool = False) -> None:
        self._picky = picky
        self.carried: list[bool] = []

    def report(self, report: Report) -> ReportReply:
        if self._picky and report.telemetry is not UNSET:
            raise RequestRejected("400")
        self.carried.append(report.telemetry is not UNSET)
        return ReportReply(0, 1, TelemetryRequest(lasts_s=60))

    def orders(self, _known: object, _wait_s: float) -> ReceivedOrders:
        return ReceivedOrders((), telemetry=TelemetryRequest(lasts_s=60))


@pytest.fixture
def committer(tmp_path: Path, clock: ManualClock) -> Iterator[DatabaseWriter]:
    committer = DatabaseWriter(NodeDatabase(tmp_path / "db", 1.0), clock)
    yield committer
    committer.close(30)


@pytest.fixture
def uplink(committer: DatabaseWriter, watched: TelemetrySubscription, clock: ManualClock) -> ReportUplink:
    status = Status(node="n1", boot_id="b", at=1.0)
    orders = OrderStore(committer, "n1")
    return ReportUplink(
        config=CONFIG, agent="a", waiting=PendingChanges(committer), orders=orders, status=lambda: status,
        clock=clock, watched=watched,
    )  # fmt: skip


def test_a_wish_in_the_answer_to_a_report_is_granted_with_the_next(uplink: ReportUplink) -> None:
    centre = Asking()
    uplink.send(centre)  # type: ignore[arg-type]  # what a report needs of a controller
    uplink.send(centre)  # type: ignore[arg-type]  # same
    assert centre.carried == [False, True]


def test_a_centre_that_cannot_take_telemetry_still_gets_its_report(
    uplink: ReportUplink, watched: TelemetrySubscription
) -> None:
    centre = Asking(picky=True)
    watched.take(TelemetryRequest(lasts_s=60))
    uplink.send(centre)  # type: ignore[arg-type]  # same
    assert centre.carried == [False]


def test_a_wish_in_the_answer_to_a_poll_is_passed_on(
    committer: DatabaseWriter, clock: ManualClock, uplink: ReportUplink
) -> None:
    def inbox(on_telemetry_request: Callable[[TelemetryRequest], None]) -> OrderInbox:
        return OrderInbox(CONFIG, "n1", OrderStore(committer, "n1"), clock, lambda: None, on_telemetry_request)

    centre = Asking()
    assert inbox(uplink.request_telemetry).fetch(centre, 0) == 0  # type: ignore[arg-type]  # same
    uplink.send(centre)  # type: ignore[arg-type]  # same
    assert centre.carried == [True]
