"""The rank's reader of its mailbox."""

from __future__ import annotations

import logging
from collections.abc import Callable

from healthd.trainer.beacons import beacon_page
from healthd.trainer.beacons.beacon_page import FieldError, MailboxOrder
from healthd.trainer.process_exit import log_without_blocking


class Mailbox:
    """The mailbox in which the node's daemon leaves orders. Each reader has its own and sees each order once.

    `untrusted` returns why the content must not be trusted, or nothing; called only when there is content.
    """

    def __init__(self, path: str, block: memoryview, untrusted: Callable[[], str]) -> None:
        self._path = path
        self._block = block
        self._untrusted = untrusted
        self._sequence = block[:8].cast("Q")
        self._read_sequence = 0
        self._warned = False

    def poll(self) -> MailboxOrder | None:
        """Return a new order, once; None while there is none. A torn order comes with a later call."""
        if self._sequence[0] == self._read_sequence:
            return None
        return self._take()

    def _take(self) -> MailboxOrder | None:
        problem = self._untrusted()
        if problem:
            self._warn(problem)
            self._read_sequence = self._sequence[0]  # ignored for good, even if the page becomes valid again
            return None
        try:
            sequence, document = beacon_page.unpack_frame("mailbox", bytes(self._block))
            order = beacon_page.order_from(document) if document is not None else None
        except FieldError as error:
            self._warn(str(error))
            return None
        self._read_sequence = sequence
        return order

    def _warn(self, problem: str) -> None:
        if not self._warned:
            self._warned = True
            log_without_blocking(logging.WARNING, "beacon %s: %s; ignored, training continues", self._path, problem)

    def close(self) -> None:
        """Unmap the page."""
        self._sequence.release()
        self._block.release()
