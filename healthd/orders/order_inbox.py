"""The long poll that fetches orders and makes them durable; it does not interpret them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from healthd.config import RemediatorConfig
from healthd.controller.controller_client import (
    ControllerClient,
    ControllerDenied,
    ControllerError,
    RequestRejected,
    RetryBackoff,
    jitter_delay,
)
from healthd.orders.order_store import OrderStore
from healthd.storage.node_database import DatabaseCorrupt, DatabaseFull
from vocabulary.clock import Clock
from vocabulary.messages.telemetry_messages import TelemetryRequest
from vocabulary.messages.wire import UnreadOrder
from vocabulary.order import Order, OrderState, OrderUpdate

WAIT_S = 30.0
POLLS_APART_S = 1.0  # if the controller does not hold a poll open, as behind a strict proxy
DATABASE_PAUSE_S = 5.0

_log = logging.getLogger("healthd.orders")


class OrderInbox:
    """The polling thread.

    Calls `on_order` once per new order, after it is durable, and `on_telemetry_request` per telemetry request.
    """

    def __init__(
        self,
        config: RemediatorConfig,
        node: str,
        orders: OrderStore,
        clock: Clock,
        on_order: Callable[[], None],
        on_telemetry_request: Callable[[TelemetryRequest], None] = lambda _: None,
    ) -> None:
        self._orders = orders
        self._clock = clock
        self._on_order = on_order
        self._on_telemetry_request = on_telemetry_request
        self.connect: Callable[[], ControllerClient] = lambda: ControllerClient(config, node)
        self._stop = threading.Event()

    def stop(self) -> None:
        """Make `run` return after the current poll."""
        self._stop.set()

    def run(self) -> None:
        """Poll until stopped."""
        controller = self.connect()
        backoff = RetryBackoff()
        failing = False
        together = True  # see `ReportUplink.run`
        while not self._stop.is_set():
            began = self._clock.monotonic()
            try:
                new = self.fetch(controller, jitter_delay(WAIT_S, together=together))
                backoff.reset()
                failing = together = False
                if not new:
                    self._stop.wait(POLLS_APART_S - (self._clock.monotonic() - began))
            except ControllerError as error:
                if not failing or isinstance(error, ControllerDenied):
                    _log.warning("orders cannot be fetched: %s", error)
                failing = together = True
                self._stop.wait(backoff.after(error))
            except (DatabaseFull, DatabaseCorrupt) as error:
                _log.error("an order could not be stored, so it is not performed: %s", error)
                self._stop.wait(DATABASE_PAUSE_S)
        controller.close()

    def fetch(self, controller: ControllerClient, wait_s: float) -> int:
        """Poll once; return the number of new orders.

        Raises:
            ControllerError: the poll failed.
            DatabaseFull, DatabaseCorrupt: an order could not be stored; the controller sends it again.
        """
        known = [order.id for order, _ in self._orders.open()]
        new = 0
        received = controller.orders(known, wait_s)
        if received.telemetry is not None:
            self._on_telemetry_request(received.telemetry)
        failed: DatabaseFull | DatabaseCorrupt | None = None
        for order in received.orders:
            try:
                new += self._receive(order)
            except (DatabaseFull, DatabaseCorrupt) as error:  # the other orders are still received
                failed = error
        if new:
            self._on_order()
        for unread in received.unread:
            self._refuse(controller, unread)
        if failed is not None:
            raise failed
        return new

    def _receive(self, order: Order) -> bool:
        new = self._orders.receive(order, self._clock.wall())
        if new:
            _log.warning("order %s: %s, because %s", order.id, order.kind.value, order.reason)
        return new

    def _refuse(self, controller: ControllerClient, unread: UnreadOrder) -> None:
        """Reject an order that only a newer healthd understands. It is not stored: without an answer it comes again."""
        why = f"this healthd does not know this order and may be too old for it: {unread.why}"
        _log.error("order %s: %s", unread.id, why)
        refusal = OrderUpdate(id=unread.id, state=OrderState.REFUSED, at=self._clock.wall(), detail=why)
        try:
            controller.answer(refusal)
        except RequestRejected as error:
            _log.error("the refusal of order %s was rejected: %s", unread.id, error)
