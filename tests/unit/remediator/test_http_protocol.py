"""What a connection keeps of a request, and when it waits for the next: bytes in, a real protocol, no socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn

from remediator.serving.http_protocol import BoundedHttpProtocol
from tests.nodes.in_memory_connection import Wire

POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n"


class Line:
    """One connection to an application that answers at once, whatever of the body came."""

    def __init__(self) -> None:
        config = uvicorn.Config(_answer, lifespan="off", log_config=None, access_log=False, ws="none")
        config.load()
        self.wire = Wire()
        self.protocol = BoundedHttpProtocol(config, uvicorn.Server(config).server_state, {})
        self.protocol.connection_made(self.wire)

    async def says(self, data: bytes) -> int:
        """How many answers there are after that."""
        self.protocol.data_received(data)
        for _ in range(5):
            await asyncio.sleep(0)
        return self.wire.written.count(b"HTTP/1.1 204")

    @property
    def keeps(self) -> bool:
        """Whether anything of a request is kept."""
        return bool(self.protocol.cycle or self.protocol.scope or self.protocol.headers)


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def kept_connection(line: Line) -> None:
    assert await line.says(POST + b"abc") == 1
    assert not line.keeps
    assert line.protocol.idle
    assert await line.says(POST + b"abc") == 2
    assert not line.keeps


async def early_answer(line: Line) -> None:
    assert await line.says(POST + b"a") == 1, "answered before its body is whole"
    assert line.keeps, "the rest of the body must find its request"
    assert await line.says(b"bc") == 1
    assert not line.keeps
    assert await line.says(POST + b"abc") == 2


async def requests_ahead(line: Line) -> None:
    assert await line.says(POST + b"abc" + POST + b"abc" + POST[:20]) == 2
    assert not line.protocol.idle
    assert await line.says(POST[20:] + b"abc") == 3
    assert not line.keeps


async def a_slow_head(line: Line) -> None:
    line.protocol.headers_s = 0.05
    assert await line.says(POST + b"abc" + POST[:20]) == 1
    while not line.wire.closed:
        assert await line.says(b"") == 1
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("course", [kept_connection, early_answer, requests_ahead, a_slow_head])
def test_a_connection_keeps_nothing_of_what_is_over(course: Callable[[Line], Any]) -> None:
    async def play() -> None:
        line = Line()
        await course(line)
        line.protocol.connection_lost(None)

    asyncio.run(play())


def test_a_token_that_is_looked_up_when_its_connection_has_ended_takes_no_place() -> None:
    """It would be kept for ever: nobody forgets it any more."""
    shown: list[str] = []

    def seen(whose: str, _most: int) -> bool:
        shown.append(whose)
        return False

    async def ended_too_soon() -> None:
        line = Line()
        line.protocol.seen = seen
        line.protocol.data_received(POST)
        known = line.protocol.scope["known"]  # type: ignore[typeddict-item]  # our own
        line.protocol.connection_lost(None)
        known("node n1", 4)

    asyncio.run(ended_too_soon())
    assert shown == []
