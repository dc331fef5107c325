"""Who comes in, and how fast: a fleet that comes back at once waits for turns of the loop, not for the processor. Who leaves leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
import uvloop

from remediator.server_config import AccessLimits
from remediator.serving.http_protocol import BoundedHttpProtocol
from remediator.serving.listener import Listener

CALLERS = 300


class Plain(asyncio.Protocol):
    """Says nothing, and carries what a listener notes on it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport


def test_who_waits_outside_is_taken_in_within_a_few_turns() -> None:
    taken_in: list[Plain] = []

    def make_protocol() -> Plain:
        taken_in.append(Plain())
        return taken_in[-1]

    limits = AccessLimits(strangers_per_address=CALLERS, strangers=CALLERS)
    listener = Listener(("127.0.0.1", 0), None, limits, make_protocol)  # type: ignore[arg-type]  # it needs no HTTP
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


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def _patient(_scope: Any, receive: Any, send: Any) -> None:
    """Answers a whole request, and waits for the rest of one that is not."""
    message = await receive()
    while message.get("more_body"):
        message = await receive()
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GE",
        b"no HTTP\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf",
    ],
)
def test_of_a_connection_that_ended_nothing_waits_for_the_collector_of_cycles(said: bytes, no_collection: None) -> None:
    """The collection of all is hourly: what ended connections left until then made the controller grow."""
    config = uvicorn.Config(_patient, lifespan="off", log_config=None, access_log=False, ws="none")
    config.load()
    state = uvicorn.Server(config).server_state
    spoke: list[weakref.ref[BoundedHttpProtocol]] = []

    def make_protocol() -> BoundedHttpProtocol:
        protocol = BoundedHttpProtocol(config, state, {})
        spoke.append(weakref.ref(protocol))
        return protocol

    async def one_comes_and_goes() -> None:
        listener = Listener(("127.0.0.1", 0), None, AccessLimits(), make_protocol)
        listener.bind()
        listener.open()
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(said)
        while not spoke:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)  # for what was said to be heard
        writer.close()
        await writer.wait_closed()
        for _ in range(500):
            if spoke[0]() is None:
                break
            await asyncio.sleep(0.01)
        listener.close()

    uvloop.run(one_comes_and_goes())
    assert spoke[0]() is None
