"""The controller's client over NATS: reports, orders, answers and hazards. The rest goes over HTTP.

So do, at once, a fatal finding that NATS does not deliver in time, for some minutes the orders that may follow it, and
messages larger than the NATS server takes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError

from healthd.config import RemediatorConfig
from healthd.controller.controller_client import (
    TIMEOUT_S,
    ControllerClient,
    ControllerUnreachable,
    make_controller_error,
)
from healthd.controller.http_client import HttpResponse
from healthd.controller.nats_connection import NatsConnection
from vocabulary.finding import Severity
from vocabulary.messages.job_hazard import JobHazard
from vocabulary.messages.nats_protocol import NodeReply
from vocabulary.messages.wire import (
    ReceivedOrders,
    Report,
    ReportReply,
    WireError,
    decode_orders,
    encode_message,
)
from vocabulary.order import OrderUpdate

URGENT_S = 3.0  # a fatal finding without a reply for so long goes over HTTP
DIRECT_S = 300.0  # after that, orders are fetched over HTTP for so long


class NatsControllerClient(ControllerClient):
    """A `ControllerClient` over the node's one NATS connection. For one thread."""

    def __init__(self, config: RemediatorConfig, node: str, connection: NatsConnection) -> None:
        super().__init__(config, node)
        self._connection = connection
        self._waiting: tuple[Future[NodeReply], float] | None = None  # and since when, monotonic seconds

    def report(self, report: Report) -> ReportReply:
        """Report this node's state; the answer says which changes are durable at the controller.

        Raises:
            ControllerUnreachable, ControllerDenied, RequestRejected: it was not taken.
        """
        content = encode_message(report)
        if not self._connection.fits(content):
            return super().report(report)
        urgent = any(change.finding.severity is Severity.FATAL for change in report.changes)
        try:
            return self.decode_answer(self._send("report", content, URGENT_S if urgent else TIMEOUT_S), ReportReply)
        except ControllerUnreachable as error:
            if not urgent or error.retry_after_s:
                raise
            self._connection.direct_until = time.monotonic() + DIRECT_S
            return super().report(report)

    def heartbeat(self, packed: bytes) -> ReportReply:
        """Report that nothing but the progress of ranks has changed since the last accepted report.

        Raises:
            RequestRejected: the controller needs a whole report.
            ControllerUnreachable, ControllerDenied: it was not taken.
        """
        if not self._connection.fits(packed):
            return super().heartbeat(packed)
        return self.decode_answer(self._send("heartbeat", packed, TIMEOUT_S), ReportReply)

    def orders(self, known: Sequence[str], wait_s: float) -> ReceivedOrders:
        """Return the open orders; waits up to `wait_s` for one that is not `known`.

        Raises:
            ControllerUnreachable, ControllerDenied, RequestRejected: they could not be had.
        """
        deadline = time.monotonic() + wait_s
        while True:
            now = time.monotonic()
            if now < self._connection.direct_until:
                return super().orders(known, min(wait_s, URGENT_S))
            content = self._connection.next_orders(max(0.0, deadline - now))
            if content is None:
                return ReceivedOrders(())
            try:
                found = decode_orders(content)
            except WireError as error:
                raise ControllerUnreachable(f"{self._connection.url}: unreadable orders: {error}") from error
            if found.unread or any(order.id not in known for order in found.orders):
                return found

    def answer(self, update: OrderUpdate) -> None:
        """Report an order's progress.

        Raises:
            ControllerUnreachable, ControllerDenied, RequestRejected: it was not taken.
        """
        self._send("answer", encode_message(update), TIMEOUT_S)

    def hazard(self, job: str) -> JobHazard:
        """Return the current failure rate of a local job's nodes.

        Raises:
            ControllerUnreachable, ControllerDenied, RequestRejected: it could not be had.
        """
        return self.decode_answer(self._send("hazard", job.encode(), TIMEOUT_S), JobHazard)

    def cut_if_silent(self, patience_s: float) -> bool:
        """Abort a call without a reply within `patience_s`; return whether there was one. Callable from any thread."""
        waiting = self._waiting
        if waiting is not None and time.monotonic() - waiting[1] >= patience_s:
            with contextlib.suppress(InvalidStateError):  # answered just now
                waiting[0].set_exception(ControllerUnreachable(f"{self._connection.url}: no reply yet, urgent"))
            return True
        return super().cut_if_silent(patience_s)

    def _send(self, kind: str, body: bytes, wait_s: float) -> bytes:
        started: Future[NodeReply] = Future()
        self._waiting = (started, time.monotonic())
        try:
            reply = self._connection.send(kind, body, started, wait_s)
        finally:
            self._waiting = None
        if 200 <= reply.status < 300:
            return reply.body
        headers = {"retry-after": f"{reply.retry_after_s:.0f}"} if reply.retry_after_s else {}
        raise make_controller_error(f"{self._connection.url}: {kind}", HttpResponse(reply.status, headers, reply.body))
