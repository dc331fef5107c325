"""The controller's orders as a node reads them: one that is not understood spoils no other."""

from __future__ import annotations

from tests.fuzz.target import Target
from vocabulary.messages.wire import WireError, decode_orders


def judge(data: bytes) -> None:
    """Orders, unread ones by their ids, or one declared error."""
    try:
        received = decode_orders(data)
    except WireError:
        return
    if not all(isinstance(unread.id, str) for unread in received.unread):
        raise AssertionError("an order without an id passes")


_ORDER = b'{"id":"o1","kind":"checkpoint_then_eject","node":"n1","reason":"xid 79","created_at":1.0,"expires_at":9.0,"job":"j"'
TARGET = Target(
    judge,
    (
        b'{"orders":[]}',
        b'{"orders":[' + _ORDER + b'}],"telemetry":{"lasts_s":60.0,"back_s":3600.0}}',
        b'{"orders":[{"id":"o2","kind":"of tomorrow"},' + _ORDER + b"}]}",
    ),
)
