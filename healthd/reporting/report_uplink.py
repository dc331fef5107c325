"""Sends reports (at once on a change, else every interval) and order results to the controller.

Order results follow the report: a passed preflight is announced only after the findings it cleared. A change leaves the
outbox only when the controller has stored it durably. The thread never waits for this node's disk.

A fatal finding that the controller has not received is urgent: a call without an answer is cut after `FIRST_BYTE_S` and
repeated on a new connection, and no pause after a failure exceeds `URGENT_PAUSE_S_MAX`. Reports are numbered, so a
duplicate changes nothing. While a node has no news, it sends heartbeats instead of whole reports.
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
from vocabulary.messages.heartbeat import RankKey, build_heartbeat, encode_heartbeat, newest_windows
from vocabulary.messages.message_bounds import ACTIVE_MAX, CHANGES_PER_REPORT_MAX, RANKS_MAX, holds_nul
from vocabulary.messages.swap_messages import JobSwap
from vocabulary.messages.telemetry_messages import TelemetryRequest
from vocabulary.messages.wire import (
    REPORT_BYTES_MAX,
    WIRE_VERSION,
    Report,
    ReportReply,
    StepWindow,
    WireError,
    check_order_update,
    decode_report,
    encode_message,
)
from vocabulary.order import OrderUpdate

FIRST_BYTE_S = 3.0  # doubled with each cut until an answer comes: the controller may only be slow
URGENT_PAUSE_S_MAX = 3.0

_log = logging.getLogger("healthd.uplink")


class ReportUplink:
    """The uplink thread. `wake` makes it report now; `heard_at` is when the controller last accepted a report."""

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
        self._hurry = threading.Event()  # a pause after a failure has ended
        self._controller: ControllerClient | None = None
        self._patience_s = FIRST_BYTE_S
        self._patience_lock = threading.Lock()
        self._fatal_heard: frozenset[str] = frozenset()  # fatal findings of the last accepted report
        self._seq = 0
        self._base: Report | None = None  # the last whole report that the controller accepted
        self._received: dict[RankKey, StepWindow] = {}  # each rank's newest window that the controller has
        self._batch = CHANGES_PER_REPORT_MAX
        self._unwanted: frozenset[str] = frozenset()  # ids of active findings that the controller rejects
        self.heard_at: float | None = None
        self.connect: Callable[[], ControllerClient] = lambda: ControllerClient(config, status().node)
        self.swaps: Callable[[], tuple[JobSwap, ...]] = tuple  # of the jobs whose launcher runs here

    def wake(self) -> None:
        """Report a change now. Callable from any thread."""
        self._news.set()

    def request_telemetry(self, request: TelemetryRequest) -> None:
        """Report now, with telemetry, because someone is viewing this node. Callable from any thread."""
        self._watched.take(request)
        self.wake()

    def look_after_urgent(self) -> None:
        """Cut the wait for a silent controller if a fatal finding is pending.

        Call about once a second, from any thread.
        """
        controller = self._controller
        if controller is None or _list_fatal_findings(self._status().findings) <= self._fatal_heard | self._unwanted:
            return
        self._hurry.set()
        patience_s = self._patience_s
        if controller.cut_if_silent(patience_s):
            _log.warning("no answer from the remediator for %g s; retrying on a new connection", patience_s)
            with self._patience_lock:
                if self._patience_s == patience_s:  # no answer has come since
                    self._patience_s = min(2 * patience_s, TIMEOUT_S)

    def stop(self) -> None:
        """Make `run` return soon."""
        self._stop.set()
        self._news.set()
        self._hurry.set()

    def run(self) -> None:
        """Report until stopped; survives any controller outage."""
        controller = self._controller = self.connect()
        backoff = RetryBackoff()
        failing = False
        together = True  # after a controller restart all nodes connect at once
        while not self._stop.is_set():
            try:
                self._news.clear()
                self.send(controller)
                backoff.reset()
                if failing:
                    _log.info("the remediator accepts reports again")
                failing = False
                self._news.wait(
                    jitter_delay(self._watched.interval_s(self._config.report_interval_s), together=together)
                )
                together = False
            except ControllerError as error:
                pause_s = backoff.after(error)
                if not failing or isinstance(
                    error, ControllerDenied
                ):  # log an outage once, a wrong token until it is corrected
                    level = logging.ERROR if isinstance(error, (ControllerDenied, RequestRejected)) else logging.WARNING
                    _log.log(level, "report not delivered: %s; retrying in %.1f s", error, pause_s)
                failing = together = True
                self._pause(pause_s, error)
        self._controller = None
        controller.close()

    def _pause(self, pause_s: float, error: ControllerError) -> None:
        """Pause after a failure; shorter when urgent, unless the controller set the time or a person must act."""
        least_s = min(pause_s, URGENT_PAUSE_S_MAX)
        if not isinstance(error, ControllerUnreachable) or error.retry_after_s:
            least_s = pause_s
        self._stop.wait(least_s)
        self._hurry.clear()
        if pause_s > least_s and not self._stop.is_set():
            self._hurry.wait(pause_s - least_s)

    def send(self, controller: ControllerClient) -> None:
        """Send one report, more while changes remain, then the order results.

        Raises:
            ControllerError: the controller did not accept all; what it accepted is settled.
        """
        answers = self._orders.unsent(
            self._status().newest_change
        )  # read before the changes, so that they are never older than the results
        while self._send_batch(controller):
            pass
        for answer in answers:
            try:
                controller.answer(_within_bounds(answer))
            except RequestRejected as error:  # the order is unknown there; retrying would block all others
                _log.error("answer to order %s rejected: %s", answer.id, error)
            self._orders.mark_sent(answer)

    def _send_batch(self, controller: ControllerClient) -> bool:
        """Send one report; return whether more changes should follow at once."""
        report = self._report(self._batch)
        if self._send_heartbeat(controller, report):
            return False
        report = report if _is_within_bounds(report) else _fit_report(report)
        try:
            reply = controller.report(report)
        except RequestRejected as error:
            if self._leave_out(report, error):
                return True
            if report.telemetry is not UNSET:  # the only part that can be dropped without loss
                self._watched.end()
                return True
            if not report.changes:
                raise
            self._narrow(controller, report)
            return True
        self._base = report if reply.base == report.seq else None
        self._note_reply(report, reply)
        full = len(report.changes) == self._batch
        self._batch = min(2 * self._batch, CHANGES_PER_REPORT_MAX)
        if report.changes:
            self._waiting.acknowledge(min(reply.acked_seq, report.changes[-1].seq))
        return full and reply.acked_seq >= report.changes[-1].seq

    def _send_heartbeat(self, controller: ControllerClient, report: Report) -> bool:
        """Send the report as a heartbeat, if it has no news; return whether the controller accepted that."""
        heartbeat = None if self._base is None else build_heartbeat(self._base, report, self._received)
        packed = None if heartbeat is None else encode_heartbeat(heartbeat)
        if packed is None:
            return False
        try:
            reply = controller.heartbeat(packed)
        except RequestRejected:  # another leader, which does not have the last report, or an older controller
            self._base = None
            return False
        self._note_reply(report, reply)
        return True

    def _note_reply(self, report: Report, reply: ReportReply) -> None:
        self._received = newest_windows(report)
        self.heard_at = self._clock.wall()
        self._fatal_heard = _list_fatal_findings(report.active)
        with self._patience_lock:
            self._patience_s = FIRST_BYTE_S
        self._watched.apply_reply(report.telemetry, reply.telemetry)

    def _leave_out(self, report: Report, error: RequestRejected) -> bool:
        """Drop the finding that the controller rejected by id; return whether there was one, so the rest can be sent."""
        refused = [change for change in report.changes if change.finding.id == error.finding]
        is_active = any(finding.id == error.finding for finding in report.active)
        if not error.finding or not (refused or is_active):
            return False
        _log.error("the controller rejects finding %s, which is dropped: %s", error.finding, error)
        for change in refused:
            self._waiting.set_aside(change.seq)
        if is_active:
            self._unwanted |= {error.finding}
        return True

    def _narrow(self, controller: ControllerClient, report: Report) -> None:
        """Find the change that the controller rejects and set it aside, so that it does not block the others.

        Raises:
            ControllerError: the controller rejects even a report without changes, so no change is the cause.
        """
        if len(report.changes) > 1:
            self._batch = len(report.changes) // 2
            return
        least = self._report(0)
        controller.report(least if _is_within_bounds(least) else _fit_report(least))
        change = report.changes[0]
        _log.error("the remediator rejects change %s, it is set aside: %s", change.seq, encode_message(change).decode())
        self._waiting.set_aside(change.seq)

    def _report(self, limit: int) -> Report:
        status = self._status()
        changes = self._waiting.changes(limit, status.newest_change)  # one instant: exclude newer changes
        self._seq += 1
        active = status.findings
        if self._unwanted:
            self._unwanted &= {finding.id for finding in active}
            active = tuple(finding for finding in active if finding.id not in self._unwanted)
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
            active=active,
            gpus=status.gpus,
            ranks=status.ranks,
            versions=status.versions,
            swaps=self.swaps(),
            telemetry=self._watched.told() if limit else UNSET,
        )


def _is_within_bounds(report: Report) -> bool:
    """Check the report with the controller's own decoder, because a rejected report would make the node silent."""
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
