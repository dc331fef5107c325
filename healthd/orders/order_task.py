"""The interface of an order in progress: it is polled and reports its progress."""

from __future__ import annotations

from typing import Protocol

import msgspec

from vocabulary.order import Order, OrderState, OrderUpdate

Data = dict[str, str | int | float | bool]


class HealthVerification(msgspec.Struct, frozen=True):
    """Evidence that the node, or one of its GPUs (UUID or address), is healthy. `answer` ends the order with it.

    It does not disprove what was last seen after `until` (UTC seconds; None: never).
    """

    answer: OrderUpdate
    by: str
    gpu: str = ""
    whole_node: bool = False
    until: float | None = None


class OrderTask(Protocol):
    """One order in progress. Recreated from its last durable answer after a restart, so every step is idempotent."""

    def step(self, now: float) -> OrderUpdate | HealthVerification | None:
        """Return the progress since the last call; a final answer or a verification ends the task.

        Never blocks for long.
        """

    def close(self) -> None:
        """Stop on shutdown: leave nothing running that the daemon would no longer supervise."""


def make_order_update(
    order: Order, state: OrderState, now: float, detail: str, data: Data | None = None
) -> OrderUpdate:
    """Build an answer to `order`."""
    return OrderUpdate(id=order.id, state=state, at=now, detail=detail, data=data or {})
