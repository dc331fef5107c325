"""Everything that goes up: reports (at once on a change, else every interval) and the answers to orders.

Answers go after the report: whoever hears that a preflight passed has by then heard what it cleared. A change leaves
the outbox only when the centre says it is durable there. Nothing here waits for this node's disk.

A fatal finding that the centre has not heard of is urgent: a call that gets no answer is then cut short after
`FIRST_BYTE_S` and made anew on a fresh connection, and no pause after a failure is longer than `URGENT_PAUSE_S_MAX`.
A report that arrives twice changes nothing at the centre: it counts by its number.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from msgspec import UNSET

from healthd.config import TTL_INTERVALS, RemediatorConfig
from healthd.controller.controller_client import (
    TIMEOUT_S,
    ControllerClient,
    ControllerDenied,
    ControllerError,
    ControllerUnreachable,
    RequestRejected,
    RetryBackoff,
    jitter_delay,
)
from healthd.daemon_status import Status
from healthd.orders.order_store import OrderStore
from healthd.reporting.telemetry_subscription import TelemetrySubscription
from healthd.storage.pending_changes import PendingChanges
from vocabulary.clock import Clock
from vocabulary.finding import Finding, Severity
from vocabulary.messages.message_bounds import ACTIVE_MAX, CHANGES_PER_REPORT_MAX, RANKS_MAX, holds_nul
from vocabulary.messages.telemetry_messages import TelemetryWish
from vocabulary.messages.wire import (
    REPORT_BYTES_MAX,
    WIRE_VERSION,
    Report,
    WireError,
    check_order_update,
    decode_report,
    encode_message,
)
from vocabulary.order import OrderUpdate

FIRST_BYTE_S = 3.0  # doubled with each cut until an answer comes: the centre may be slow rather than gone
URGENT_PAUSE_S_MAX = 3.0

_log = logging.getLogger("healthd.uplink")


class ReportUplink:
    """The uplink thread. `wake` makes it report now; `heard_at` is when the centre last took a report."""

    def __init__(
        self,
        *,
        config: RemediatorConfig,
        agent: str,
        waiting: PendingChanges,
        orders: OrderStore,
        status: Callable[[], Status],
        clock: Clock,
        watched: TelemetrySubscription,
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
        self._hurry = threading.Event()  # a pause after a failure is over
        self._centre: ControllerClient | None = None
        self._patience_s = FIRST_BYTE_S
        self._fatal_heard: frozenset[str] = frozenset()  # fatal findings of the last report that the centre took
        self._seq = 0
        self._batch = CHANGES_PER_REPORT_MAX
        self._unwanted: frozenset[str] = frozenset()  # ids of active findings that the centre refuses
        self.heard_at: float | None = None

    def wake(self) -> None:
        """Something changed. Callable from any thread."""
        self._news.set()

    def wish(self, wish: TelemetryWish) -> None:
        """Somebody looks at this node: report now, with telemetry. Callable from any thread."""
        self._watched.take(wish)
        self.wake()

    def look_after_urgent(self) -> None:
        """Where a fatal finding waits for a silent centre, wait no longer. Call about once a second, from any thread."""
        centre = self._centre
        if centre is None or _list_fatal_findings(self._status().findings) <= self._fatal_heard | self._unwanted:
            return
        self._hurry.set()
        if centre.cut_if_silent(self._patience_s):
            _log.warning("no answer of the remediator for %g s; asking again on a fresh connection", self._patience_s)
            self._patience_s = min(2 * self._patience_s, TIMEOUT_S)

    def stop(self) -> None:
        """End `run` soon."""
        self._stop.set()
        self._news.set()
        self._hurry.set()

    def run(self) -> None:
        """Report until stopped; survives any outage of the centre."""
        centre = self._centre = ControllerClient(self._config, self._status().node)
        backoff = RetryBackoff()
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
                self._news.wait(
                    jitter_delay(self._watched.interval_s(self._config.report_interval_s), together=together)
                )
                together = False
            except ControllerError as error:
                pause_s = backoff.after(error)
                if not failing or isinstance(
                    error, ControllerDenied
                ):  # an outage is said once, a wrong token until it is right
                    level = logging.ERROR if isinstance(error, (ControllerDenied, RequestRejected)) else logging.WARNING
                    _log.log(level, "not reported: %s; trying again, next in %.1f s", error, pause_s)
                failing = together = True
                self._pause(pause_s, error)
        self._centre = None
        centre.close()

    def _pause(self, pause_s: float, error: ControllerError) -> None:
        """After a failure. What is urgent waits less, unless the centre itself named the time or a person must act."""
        least_s = min(pause_s, URGENT_PAUSE_S_MAX)
        if not isinstance(error, ControllerUnreachable) or error.retry_after_s:
            least_s = pause_s
        self._stop.wait(least_s)
        self._hurry.clear()
        if pause_s > least_s and not self._stop.is_set():
            self._hurry.wait(pause_s - least_s)

    def send(self, centre: ControllerClient) -> None:
        """One report, more while changes remain, then the answers.

        Raises:
            ControllerError: the centre did not take all; what it took is settled.
        """
        answers = self._orders.unsent(
            self._status().newest_change
        )  # before the changes: so these are never older than what the answers mean
        while self._send_batch(centre):
            pass
        for answer in answers:
            try:
                centre.answer(_within_bounds(answer))
            except RequestRejected as error:  # the centre no longer knows the order; insisting would block all others
                _log.error("answer to order %s not wanted: %s", answer.id, error)
            self._orders.mark_sent(answer)

    def _send_batch(self, centre: ControllerClient) -> bool:
        """One report; whether changes remain that should follow at once."""
        report = self._report(self._batch)
        try:
            reply = centre.report(report)
        except RequestRejected as error:
            if self._leave_out(report, error):
                return True
            if report.telemetry is not UNSET:  # the one part that can be left out without a loss
                self._watched.end()
                return True
            if not report.changes:
                raise
            self._narrow(centre, report)
            return True
        self.heard_at = self._clock.wall()
        self._fatal_heard = _list_fatal_findings(report.active)
        self._patience_s = FIRST_BYTE_S
        self._watched.settle(report.telemetry, reply.telemetry)
        full = len(report.changes) == self._batch
        self._batch = min(2 * self._batch, CHANGES_PER_REPORT_MAX)
        if report.changes:
            self._waiting.acknowledge(min(reply.acked_seq, report.changes[-1].seq))
        return full and reply.acked_seq >= report.changes[-1].seq

    def _leave_out(self, report: Report, error: RequestRejected) -> bool:
        """Leave the one finding out that the centre refuses by its id; whether there was one, and the rest may go."""
        refused = [change for change in report.changes if change.finding.id == error.finding]
        is_active = any(finding.id == error.finding for finding in report.active)
        if not error.finding or not (refused or is_active):
            return False
        _log.error("the remediator refuses finding %s, it is left out: %s", error.finding, error)
        for change in refused:
            self._waiting.set_aside(change.seq)
        if is_active:
            self._unwanted |= {error.finding}
        return True

    def _narrow(self, centre: ControllerClient, report: Report) -> None:
        """Something in the report is not wanted: find the change, and set it aside, or it would block all others.

        Raises:
            ControllerError: the centre wants no report at all, also none without changes: then it is not the changes.
        """
        if len(report.changes) > 1:
            self._batch = len(report.changes) // 2
            return
        centre.report(self._report(0))
        change = report.changes[0]
        _log.error(
            "the remediator does not want change %s, it is set aside: %s", change.seq, encode_message(change).decode()
        )
        self._waiting.set_aside(change.seq)

    def _report(self, limit: int) -> Report:
        status = self._status()
        changes = self._waiting.changes(limit, status.newest_change)  # a report is of one instant: none that is newer
        self._seq += 1
        active = status.findings
        if self._unwanted:
            self._unwanted &= {finding.id for finding in active}
            active = tuple(finding for finding in active if finding.id not in self._unwanted)
        report = Report(
            version=WIRE_VERSION,
            node=status.node,
            boot_id=status.boot_id,
            agent=self._agent,
            seq=self._seq,
            sent_at=self._clock.wall(),
            ttl_s=TTL_INTERVALS * self._config.report_interval_s,
            health=status.health,
            changes=changes,
            active=active,
            gpus=status.gpus,
            ranks=status.ranks,
            versions=status.versions,
            telemetry=self._watched.told() if limit else UNSET,
        )
        return report if _is_within_bounds(report) else _fit_report(report)


def _is_within_bounds(report: Report) -> bool:
    """Whether the centre takes it: asked with the centre's own words, as a report that is refused makes the node silent."""
    if len(report.active) > ACTIVE_MAX or len(report.ranks) > RANKS_MAX:
        return False
    try:
        content = encode_message(report)
        decode_report(content)
    except (WireError, UnicodeEncodeError):
        return False
    return len(content) <= REPORT_BYTES_MAX


def _fit_report(report: Report) -> Report:
    from vocabulary.messages.message_truncation import fit_report  # noqa: PLC0415 - hardly ever needed, and half a megabyte

    return fit_report(report)


def _within_bounds(answer: OrderUpdate) -> OrderUpdate:
    try:
        check_order_update(answer)
        if not holds_nul(encode_message(answer)):
            return answer
    except (WireError, UnicodeEncodeError):
        pass
    from vocabulary.messages.message_truncation import fit_order_update  # noqa: PLC0415 - as above

    return fit_order_update(answer)


def _list_fatal_findings(findings: Iterable[Finding]) -> frozenset[str]:
    return frozenset(finding.id for finding in findings if finding.severity is Severity.FATAL)
