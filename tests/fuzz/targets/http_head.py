"""Bytes on a connection to the controller, before anybody showed a token."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import uvicorn

from remediator.serving.http_protocol import HEAD_BYTES_MAX, BoundedHttpProtocol
from tests.fuzz.target import Target
from tests.nodes.in_memory_connection import Wire

SPLITS = 3


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    """Stands for the application: says nothing but that it was called."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


_CONFIG = uvicorn.Config(_answer, lifespan="off", log_config=None, access_log=False, ws="none")
_CONFIG.load()
logging.getLogger("uvicorn.error").disabled = True
_STATE = uvicorn.Server(_CONFIG).server_state
_LOOP = asyncio.new_event_loop()


async def _connection(data: bytes) -> None:
    protocol, wire = BoundedHttpProtocol(_CONFIG, _STATE, {}), Wire()
    protocol.connection_made(wire)
    cut = data[0] % SPLITS + 1 if data else 1
    size = max(1, len(data) // cut)
    for at in range(1, len(data), size):
        if wire.closed:
            break
        protocol.data_received(data[at : at + size])
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    if protocol._held > HEAD_BYTES_MAX and not wire.closed:
        raise AssertionError("more is kept than may be")
    if wire.written and not wire.written.startswith(b"HTTP/1.1 "):
        raise AssertionError(f"no answer: {bytes(wire.written[:40])!r}")
    protocol.connection_lost(None)


def judge(data: bytes) -> None:
    """Never an error; every answer is one."""
    _LOOP.run_until_complete(_connection(data))


_GET = b"GET /v1/status?a=b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\n\r\n"
TARGET = Target(
    judge,
    (
        b"\0" + _GET,
        b"\1" + _GET * 3,
        b"\0POST /v1/nodes/n1/report HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n{}\n",
        b"\0POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        b"\2POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n5;x=y\r\nhello\r\n0\r\nX: y\r\n\r\n",
        b"\0GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n",
        b"\0PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0CONNECT x:1 HTTP/1.1\r\n\r\n",
    ),
)
