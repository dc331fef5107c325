"""A rank's mailbox: the node's daemon writes orders into it, and the rank reads them."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable

from healthd.trainer.beacons import beacon_page
from healthd.trainer.beacons.beacon_page import BeaconError, FieldError, MailboxOrder
from healthd.trainer.beacons.page_reader import check_page_file, check_page_owner, open_page, read_current_identity
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


def post_order(path: str, order: MailboxOrder) -> int:
    """Write an order into a rank's mailbox, replacing the previous one; the same order again changes nothing.

    Returns:
        The mailbox's sequence number.

    Raises:
        BeaconError: the page cannot be trusted or understood, or the order does not fit.
        FileNotFoundError: there is no such page.
    """
    descriptor = open_page(path, os.O_RDWR)
    try:
        uid = check_page_file(path, descriptor)
        check_page_owner(read_current_identity(descriptor), uid)
        block = os.pread(descriptor, beacon_page.MAILBOX_BYTES, beacon_page.MAILBOX_AT)
        sequence = beacon_page.FRAME_HEAD.unpack_from(block)[0]
        with contextlib.suppress(FieldError):  # damaged: the new order overwrites it
            _, held = beacon_page.unpack_frame("mailbox", block)
            if held is not None and beacon_page.order_from(held) == order:
                return int(sequence)
        sequence = (sequence + 1) % (1 << 63) or 1
        frame = beacon_page.pack_frame("mailbox", sequence, order._asdict(), beacon_page.MAILBOX_BYTES)
        os.pwrite(descriptor, frame[8:], beacon_page.MAILBOX_AT + 8)
        os.pwrite(descriptor, frame[:8], beacon_page.MAILBOX_AT)  # last, because the rank polls only this
        return int(sequence)
    except FieldError as error:
        raise BeaconError(path, error.field, error.problem) from error
    finally:
        os.close(descriptor)
