"""Orders in the outbox: durable before they are acted upon, kept until the centre has heard how they ended."""

from __future__ import annotations

import msgspec

from healthd.outbox import Condemned, Outbox
from vocabulary.order import Order, OrderState, OrderUpdate

ENDED_KEPT = 1000  # remembered, so that an order that comes again is not performed again


class OrderStore:
    """The orders of this node."""

    def __init__(self, outbox: Outbox, node: str) -> None:
        self._outbox = outbox
        self._node = node

    def receive(self, order: Order, at: float) -> bool:
        """Keep a new order, and the mark if it condemns this node. False for one that is already known.

        A known order that ended, and comes again, ended unheard: its answer will be sent once more.
        """
        with self._outbox.transaction():
            if self._outbox.rows("select 1 from orders where id = ?", order.id):
                self._outbox.rows("update orders set sent = 0 where id = ? and final = 1", order.id)
                return False
            answer = OrderUpdate(id=order.id, state=OrderState.RECEIVED, at=at)
            values = (order.id, answer.state.value, 0, 0, at, msgspec.json.encode(order), msgspec.json.encode(answer))
            self._outbox.rows("insert into orders values (?, ?, ?, ?, ?, ?, ?)", *values)
            if self._node in order.condemned:
                self._outbox.put("condemned", Condemned(order.id, at, order.reason))
            self._outbox.rows(
                "delete from orders where id in"
                " (select id from orders where final = 1 and sent = 1 order by at desc limit -1 offset ?)",
                ENDED_KEPT,
            )
            return True

    def answer(self, answer: OrderUpdate) -> None:
        """How far an order got. It ends once: what comes after a final state is ignored."""
        with self._outbox.transaction():
            self._outbox.rows(
                "update orders set state = ?, final = ?, sent = 0, at = ?, answer = ? where id = ? and final = 0",
                answer.state.value,
                answer.state.final,
                answer.at,
                msgspec.json.encode(answer),
                answer.id,
            )

    def open(self) -> list[tuple[Order, OrderUpdate]]:
        """Orders that have not ended, oldest first, with how far they got."""
        found = []
        for body, answer in self._outbox.rows("select body, answer from orders where final = 0 order by at"):
            update = msgspec.json.decode(answer, type=OrderUpdate)
            try:
                found.append((msgspec.json.decode(body, type=Order), update))
            except msgspec.ValidationError as error:  # a newer healthd took it, and was put back to this one
                why = f"this healthd is too old for the order: {error}"
                self.answer(msgspec.structs.replace(update, state=OrderState.REFUSED, detail=why))
        return found

    def unsent(self) -> list[OrderUpdate]:
        """Answers the centre has not heard yet; of several about one order only the last, which says it all."""
        rows = self._outbox.rows("select answer from orders where sent = 0 order by at")
        return [msgspec.json.decode(answer, type=OrderUpdate) for (answer,) in rows]

    def mark_sent(self, answer: OrderUpdate) -> None:
        """The centre has this very answer."""
        with self._outbox.transaction():
            self._outbox.rows(
                "update orders set sent = 1 where id = ? and answer = ?", answer.id, msgspec.json.encode(answer)
            )
