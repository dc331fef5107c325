"""An order is handed out by whoever leads beyond doubt, and by nobody else."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from remediator.api.handler_context import HandlerContext, LongPollWakeups, Refusal
from remediator.api.report_handlers import _wait_for_orders
from remediator.fleet.telemetry_cache import TelemetryCache
from vocabulary.clock import SystemClock
from vocabulary.order import Order, OrderKind

ORDER = Order(
    id="o1", kind=OrderKind.ABORT, node="n1", issued_at=1.0, expires_at=9e9, incident="i", reason="a test"
)  # fmt: skip


class Standing:
    """An engine with one open order, whose lead comes after so many questions, or never."""

    trouble = ""

    def __init__(self, doubts: int, *orders: Order) -> None:
        self.doubts = doubts
        self.snapshot = SimpleNamespace(orders_for=lambda _node, _now, _known: orders)

    def may_act(self) -> bool:
        self.doubts -= 1
        return self.doubts < 0


def handed_out(engine: Standing, wait_s: float, known: frozenset[str] = frozenset()) -> tuple[Order, ...]:
    service = cast(
        "HandlerContext",
        SimpleNamespace(engine=engine, clock=SystemClock(), wakeups=LongPollWakeups(), telemetry=TelemetryCache()),
    )
    found: Any = asyncio.run(_wait_for_orders(service, "n1", known, wait_s))
    return tuple(found)


def test_the_leader_hands_out_what_is_open() -> None:
    assert handed_out(Standing(0, ORDER), 0) == (ORDER,)
    assert handed_out(Standing(0), 0) == ()


def test_while_the_lead_is_in_doubt_the_node_waits_a_little() -> None:
    assert handed_out(Standing(3, ORDER), 0) == (ORDER,)


def test_who_cannot_be_sure_hands_out_nothing_and_takes_nothing_back() -> None:
    for orders in ((ORDER,), ()):
        with pytest.raises(Refusal) as refused:
            handed_out(Standing(10**9, *orders), 0)
        assert refused.value.status == 503
        assert refused.value.headers == {"retry-after": "1"}
