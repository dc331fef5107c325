"""Messages of many nodes in one request, between `remediator ingest` and the leader. MessagePack, as arrays."""

from __future__ import annotations

import msgspec

from vocabulary.messages.wire import REPORT_BYTES_MAX
from vocabulary.order import Order

BATCH_MESSAGES_MAX = 256
BATCH_BYTES_MAX = 2 * REPORT_BYTES_MAX
RETRY_LATER = 503  # the status of a message that the leader cannot take now


class DeliveredMessage(msgspec.Struct, frozen=True, array_like=True):
    """One message: the node and kind that its subject proves, and the body, which only the leader reads."""

    node: str
    kind: str
    body: bytes


class MessageAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The answer to one message: status and body as the message's own route gives them. `retry_after_s` 0: not set."""

    status: int
    body: bytes = b""
    retry_after_s: float = 0.0


class NodeOrders(msgspec.Struct, frozen=True):
    """The open orders of one node, oldest first."""

    node: str
    orders: tuple[Order, ...]


class AllOrders(msgspec.Struct, frozen=True):
    """`GET /v1/orders`: every node with open orders. `version` identifies this content."""

    version: str
    nodes: tuple[NodeOrders, ...]
