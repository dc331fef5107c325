"""While somebody looks: what reports carry then, how often they go, and that it ends by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import UNSET

from healthd.centre import Rejected
from healthd.committer import Committer
from healthd.config import RemediatorConfig
from healthd.orders.inbox import Inbox
from healthd.orders.store import OrderStore
from healthd.outbox import Outbox
from healthd.status import Status
from healthd.uplink import Uplink
from healthd.waiting_changes import WaitingChanges
from healthd.watched import REPORTS_APART_S, Watched
from vocabulary.clock import ManualClock
from vocabulary.telemetry import WISH_S_MAX, TelemetryPart, TelemetryWish
from vocabulary.wire import ReceivedOrders, Report, ReportReply, decode

USUAL_S = 10.0
CONFIG = RemediatorConfig(url="http://x", token_file=Path("token"))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def watched(clock: ManualClock) -> Watched:
    """Its parts say by their clock how far back they were asked to go."""
    return Watched(lambda back_s: TelemetryPart(back_s, ()), clock)


def back_s(watched: Watched) -> float | None:
    told = watched.told()
    return None if told is UNSET else decode(bytes(told), TelemetryPart).monotonic


def test_without_a_wish_nothing_is_carried(watched: Watched) -> None:
    assert (back_s(watched), watched.interval_s(USUAL_S)) == (None, USUAL_S)


def test_a_wish_goes_further_back_the_older_it_is_and_ends(watched: Watched, clock: ManualClock) -> None:
    watched.take(TelemetryWish(lasts_s=60, back_s=30))
    assert (back_s(watched), watched.interval_s(USUAL_S)) == (30, REPORTS_APART_S)
    assert watched.interval_s(1.0) == 1.0
    clock.advance(59)
    assert back_s(watched) == 89
    clock.advance(1)
    assert (back_s(watched), watched.interval_s(USUAL_S)) == (None, USUAL_S)


def test_a_mistake_in_what_is_only_looked_at_keeps_no_report_from_going(clock: ManualClock) -> None:
    def part(_back_s: float) -> TelemetryPart:
        raise OverflowError

    watched = Watched(part, clock)
    watched.take(TelemetryWish(lasts_s=60))
    assert watched.told() is UNSET
    assert watched.interval_s(USUAL_S) == USUAL_S


def test_no_wish_lasts_for_ever(watched: Watched, clock: ManualClock) -> None:
    watched.take(TelemetryWish(lasts_s=1e30))
    clock.advance(WISH_S_MAX)
    assert back_s(watched) is None


def test_an_answer_that_is_older_than_the_wish_does_not_end_it(watched: Watched) -> None:
    watched.take(TelemetryWish(lasts_s=60))
    watched.settle(UNSET, None)
    told = watched.told()
    assert told is not UNSET
    watched.settle(told, TelemetryWish(lasts_s=60, back_s=30))
    assert back_s(watched) == 30
    watched.settle(watched.told(), None)
    assert back_s(watched) is None


# -- the uplink and the inbox ------------------------------------------------------------------------------------------


class Asking:
    """A centre that answers every report with a wish; with `picky`, it wants no telemetry all the same."""

    def __init__(self, *, picky: bool = False) -> None:
        self._picky = picky
        self.carried: list[bool] = []

    def report(self, report: Report) -> ReportReply:
        if self._picky and report.telemetry is not UNSET:
            raise Rejected("400")
        self.carried.append(report.telemetry is not UNSET)
        return ReportReply(0, 1, TelemetryWish(lasts_s=60))

    def orders(self, _known: object, _wait_s: float) -> ReceivedOrders:
        return ReceivedOrders((), telemetry=TelemetryWish(lasts_s=60))


@pytest.fixture
def committer(tmp_path: Path, clock: ManualClock) -> Iterator[Committer]:
    committer = Committer(Outbox(tmp_path / "db", 1.0), clock)
    yield committer
    committer.close(30)


@pytest.fixture
def uplink(committer: Committer, watched: Watched, clock: ManualClock) -> Uplink:
    status = Status(node="n1", boot_id="b", at=1.0)
    orders = OrderStore(committer, "n1")
    return Uplink(
        config=CONFIG, agent="a", waiting=WaitingChanges(committer), orders=orders, status=lambda: status,
        clock=clock, watched=watched,
    )  # fmt: skip


def test_a_wish_in_the_answer_to_a_report_is_granted_with_the_next(uplink: Uplink) -> None:
    centre = Asking()
    uplink.send(centre)  # type: ignore[arg-type]  # what a report needs of a centre
    uplink.send(centre)  # type: ignore[arg-type]  # same
    assert centre.carried == [False, True]


def test_a_centre_that_cannot_take_telemetry_still_gets_its_report(uplink: Uplink, watched: Watched) -> None:
    centre = Asking(picky=True)
    watched.take(TelemetryWish(lasts_s=60))
    uplink.send(centre)  # type: ignore[arg-type]  # same
    assert centre.carried == [False]


def test_a_wish_in_the_answer_to_a_poll_is_passed_on(committer: Committer, clock: ManualClock, uplink: Uplink) -> None:
    def inbox(on_wish: Callable[[TelemetryWish], None]) -> Inbox:
        return Inbox(CONFIG, "n1", OrderStore(committer, "n1"), clock, lambda: None, on_wish)

    centre = Asking()
    assert inbox(uplink.wish).fetch(centre, 0) == 0  # type: ignore[arg-type]  # same
    uplink.send(centre)  # type: ignore[arg-type]  # same
    assert centre.carried == [True]
