"""Writes orders into ranks' mailboxes: for the node daemon. `mailbox.py` is the rank's reader."""

from __future__ import annotations

import os

from healthd.trainer.beacons import beacon_page
from healthd.trainer.beacons.beacon_page import BeaconError, FieldError, MailboxOrder
from healthd.trainer.beacons.page_reader import check_page_file, check_page_owner, open_page, read_current_identity


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
        if _read_held_order(block) == order:
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


def _read_held_order(block: bytes) -> MailboxOrder | None:
    try:
        _, document = beacon_page.unpack_frame("mailbox", block)
        return None if document is None else beacon_page.order_from(document)
    except FieldError:
        return None  # damaged: the new order overwrites it
