"""Who comes in, and how fast: a fleet that comes back at once waits for turns of the loop, not for the processor."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from remediator.door import Limits
from remediator.serving.listener import Listener

CALLERS = 300


class Plain(asyncio.Protocol):
    """Says nothing, and carries what a listener notes on it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport


def test_who_waits_outside_is_taken_in_within_a_few_turns() -> None:
    taken_in: list[Plain] = []

    def speak() -> Plain:
        taken_in.append(Plain())
        return taken_in[-1]

    limits = Limits(strangers_per_address=CALLERS, strangers=CALLERS)
    listener = Listener(("127.0.0.1", 0), None, limits, speak)  # type: ignore[arg-type]  # it needs no HTTP
    listener.bind()
    callers = [socket.create_connection(("127.0.0.1", listener.port), timeout=60) for _ in range(CALLERS)]

    async def a_few_turns() -> int:
        listener.open()
        for _ in range(3):
            await asyncio.sleep(0)
        listener.close()
        at_once = len(taken_in)
        while not all(hasattr(each, "transport") for each in taken_in):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        for each in taken_in:
            each.transport.abort()
        await asyncio.sleep(0.01)
        return at_once

    assert asyncio.run(a_few_turns()) == CALLERS
    for each in callers:
        each.close()
