"""The evidence order: collects recent data, stores it on this node's disk, then sends it to the controller.

Both steps are idempotent: the order names the file, and the controller keeps one bundle per order. Collecting and
sending run in their own thread, so that other orders proceed.
"""

from __future__ import annotations

import gzip
import logging
import threading
from collections.abc import Callable
from typing import Protocol

from healthd.controller.controller_client import ControllerError, RequestRejected, RetryBackoff
from healthd.orders.evidence_files import EvidenceFiles
from healthd.orders.order_task import Data, make_order_update
from vocabulary.messages.evidence_bundle import EvidenceBundle
from vocabulary.messages.wire import encode_message
from vocabulary.order import Order, OrderState, OrderUpdate

DETAIL_CHARS_MAX = 1000

_log = logging.getLogger("healthd.orders")


class EvidenceReceiver(Protocol):
    """Receives bundles."""

    def evidence(self, order: str, content: bytes) -> None:
        """Send a gzipped bundle; it is durable at the controller on return. Raises ControllerError."""

    def close(self) -> None:
        """Close the connection."""


class EvidenceTask:
    """Succeeds once the controller has the bundle; retries until the order expires.

    A restart resumes from the file on disk.
    """

    def __init__(
        self,
        order: Order,
        files: EvidenceFiles,
        collect: Callable[[Order], EvidenceBundle],
        connect: Callable[[], EvidenceReceiver],
    ) -> None:
        self._order = order
        self._files = files
        self._collect = collect
        self._connect = connect
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._result: tuple[OrderState, str] | None = None
        self._trouble = "nothing has been collected yet"
        self._data: Data = {}

    def step(self, now: float) -> OrderUpdate | None:
        """Start the thread; then check whether it has finished."""
        if self._result is not None:
            state, detail = self._result
            return make_order_update(self._order, state, now, detail[:DETAIL_CHARS_MAX], dict(self._data))
        if now >= self._order.expires_at:
            self.close()
            detail = f"not delivered before the order expired: {self._trouble}"
            return make_order_update(self._order, OrderState.EXPIRED, now, detail[:DETAIL_CHARS_MAX], dict(self._data))
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="evidence", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no further thread can be started now
                self._trouble = str(error)
                return None
            self._thread = thread
            return make_order_update(self._order, OrderState.RUNNING, now, "being collected")
        return None

    def close(self) -> None:
        """Stop retrying; a call in progress may outlast this and is harmless."""
        self._stop.set()

    def _work(self) -> None:
        try:
            self._result = self._deliver(self._content())
        except Exception as error:  # noqa: BLE001 - it must end as a failed order, not as a thread that died unnoticed
            _log.exception("order %s", self._order.id)
            self._result = OrderState.FAILED, f"internal error: {error!r}"

    def _content(self) -> bytes:
        kept = self._files.read(self._order.id)
        if kept is not None:
            self._data |= {"bytes": len(kept), "file": str(self._files.path(self._order.id))}
            return kept
        bundle = self._collect(self._order)
        content = gzip.compress(encode_message(bundle), 6, mtime=0)
        self._data |= {
            "bytes": len(content),
            "series": len(bundle.series),
            "kernel_lines": len(bundle.kernel_lines),
            "ranks": len(bundle.ranks),
            "missing": len(bundle.missing),
        }
        try:
            self._files.write(self._order.id, content)
            self._data["file"] = str(self._files.path(self._order.id))
        except OSError as error:  # the controller may still have it
            _log.warning(
                "order %s: the evidence cannot be stored on this node (free space there): %s", self._order.id, error
            )
        return content

    def _deliver(self, content: bytes) -> tuple[OrderState, str] | None:
        """Return the result; None if stopped."""
        controller, backoff = self._connect(), RetryBackoff()
        try:
            while not self._stop.is_set():
                try:
                    controller.evidence(self._order.id, content)
                except RequestRejected as error:
                    return OrderState.FAILED, f"the controller rejects it: {error}"
                except ControllerError as error:
                    self._trouble = str(error)
                    self._stop.wait(backoff.after(error))
                else:
                    return OrderState.SUCCEEDED, f"{len(content)} bytes of evidence delivered to the controller"
        finally:
            controller.close()
        return None
