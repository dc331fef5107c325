"""Everything that goes up: reports (at once on a change, else every interval) and the answers to orders.

Answers go after the report: whoever hears that a preflight passed has by then heard what it cleared. A change leaves
the outbox only when the centre says it is durable there. Nothing here waits for this node's disk.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from msgspec import UNSET

from healthd.centre import Backoff, Centre, CentreError, Denied, Rejected, spread
from healthd.config import RemediatorConfig
from healthd.orders.store import OrderStore
from healthd.status import Status
from healthd.waiting_changes import WaitingChanges
from healthd.watched import Watched
from vocabulary.clock import Clock
from vocabulary.telemetry import TelemetryWish
from vocabulary.wire import CHANGES_PER_REPORT_MAX, WIRE_VERSION, Report, encode

TTL_INTERVALS = 3.0  # reports that may be missed before the node counts as unknown

_log = logging.getLogger("healthd.uplink")


class Uplink:
    """The uplink thread. `wake` makes it report now; `heard_at` is when the centre last took a report."""

    def __init__(
        self,
        *,
        config: RemediatorConfig,
        agent: str,
        waiting: WaitingChanges,
        orders: OrderStore,
        status: Callable[[], Status],
        clock: Clock,
        watched: Watched,
    ) -> None:
        self._config = config
        self._agent = agent
        self._waiting = waiting
        self._orders = orders
        self._status = status
        self._clock = clock
        self._watched = watched
        self._news = threading.Event()
        self._stop = threading.Event()
        self._seq = 0
        self._batch = CHANGES_PER_REPORT_MAX
        self.heard_at: float | None = None

    def wake(self) -> None:
        """Something changed. Callable from any thread."""
        self._news.set()

    def wish(self, wish: TelemetryWish) -> None:
        """Somebody looks at this node: report now, with telemetry. Callable from any thread."""
        self._watched.take(wish)
        self.wake()

    def stop(self) -> None:
        """End `run` soon."""
        self._stop.set()
        self._news.set()

    def run(self) -> None:
        """Report until stopped; survives any outage of the centre."""
        centre = Centre(self._config, self._status().node)
        backoff = Backoff()
        failing = False
        together = True  # the centre may have begun just now, and all nodes with it
        while not self._stop.is_set():
            try:
                self._news.clear()
                self.send(centre)
                backoff.reset()
                if failing:
                    _log.info("the remediator takes reports again")
                failing = False
                self._news.wait(spread(self._watched.interval_s(self._config.report_interval_s), together=together))
                together = False
            except CentreError as error:
                pause_s = backoff.after(error)
                if not failing or isinstance(error, Denied):  # an outage is said once, a wrong token until it is right
                    level = logging.ERROR if isinstance(error, (Denied, Rejected)) else logging.WARNING
                    _log.log(level, "not reported: %s; trying again, next in %.1f s", error, pause_s)
                failing = together = True
                self._stop.wait(pause_s)
        centre.close()

    def send(self, centre: Centre) -> None:
        """One report, more while changes remain, then the answers.

        Raises:
            CentreError: the centre did not take all; what it took is settled.
        """
        answers = self._orders.unsent()  # before the changes: so these are never older than what the answers mean
        while self._send_batch(centre):
            pass
        for answer in answers:
            try:
                centre.answer(answer)
            except Rejected as error:  # the centre no longer knows the order; insisting would block all others
                _log.error("answer to order %s not wanted: %s", answer.id, error)
            self._orders.mark_sent(answer)

    def _send_batch(self, centre: Centre) -> bool:
        """One report; whether changes remain that should follow at once."""
        report = self._report(self._batch)
        try:
            reply = centre.report(report)
        except Rejected:
            if report.telemetry is not UNSET:  # the one part that can be left out without a loss
                self._watched.end()
                return True
            if not report.changes:
                raise
            self._narrow(centre, report)
            return True
        self.heard_at = self._clock.wall()
        self._watched.settle(report.telemetry, reply.telemetry)
        full = len(report.changes) == self._batch
        self._batch = min(2 * self._batch, CHANGES_PER_REPORT_MAX)
        if report.changes:
            self._waiting.acknowledge(min(reply.acked_seq, report.changes[-1].seq))
        return full and reply.acked_seq >= report.changes[-1].seq

    def _narrow(self, centre: Centre, report: Report) -> None:
        """Something in the report is not wanted: find the change, and set it aside, or it would block all others.

        Raises:
            CentreError: the centre wants no report at all, also none without changes: then it is not the changes.
        """
        if len(report.changes) > 1:
            self._batch = len(report.changes) // 2
            return
        centre.report(self._report(0))
        change = report.changes[0]
        _log.error("the remediator does not want change %s, it is set aside: %s", change.seq, encode(change).decode())
        self._waiting.set_aside(change.seq)

    def _report(self, limit: int) -> Report:
        status = self._status()
        changes = self._waiting.changes(limit, status.newest_change)  # a report is of one instant: none that is newer
        self._seq += 1
        return Report(
            version=WIRE_VERSION,
            node=status.node,
            boot_id=status.boot_id,
            agent=self._agent,
            seq=self._seq,
            sent_at=self._clock.wall(),
            ttl_s=TTL_INTERVALS * self._config.report_interval_s,
            health=status.health,
            changes=changes,
            active=status.findings,
            gpus=status.gpus,
            ranks=status.ranks,
            versions=status.versions,
            telemetry=self._watched.told() if limit else UNSET,
        )
