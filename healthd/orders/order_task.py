"""The contract of an order being performed: it is looked at from time to time and says how far it is."""

from __future__ import annotations

from typing import Protocol

import msgspec

from vocabulary.order import Order, OrderState, OrderUpdate

Data = dict[str, str | int | float | bool]


class HealthVerification(msgspec.Struct, frozen=True):
    """Something proved the node, or one GPU of it (UUID or address), to be good. `answer` ends the order with it.

    What was last seen after `until` (UTC seconds; None: never) it does not disprove.
    """

    answer: OrderUpdate
    by: str
    gpu: str = ""
    whole_node: bool = False
    until: float | None = None


class OrderTask(Protocol):
    """One order under way. Made again from its last durable answer after a restart, so every step bears repeating."""

    def step(self, now: float) -> OrderUpdate | HealthVerification | None:
        """What is new since the last look; a final answer, or a proof, ends the task. Never blocks for long."""
        ...

    def close(self) -> None:
        """The daemon stops: leave nothing running that nobody would watch."""
        ...


def make_order_update(
    order: Order, state: OrderState, now: float, detail: str, data: Data | None = None
) -> OrderUpdate:
    """An answer to `order`."""
    return OrderUpdate(id=order.id, state=state, at=now, detail=detail, data=data or {})
