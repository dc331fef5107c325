"""One connection that is kept, with one request at a time on it. Cheap: a core carries thousands of them."""

from __future__ import annotations

import asyncio
import ssl
from typing import NamedTuple, cast

HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length: "


class Answer(NamedTuple):
    """`retry_after_s`: 0 where it is not said."""

    status: int
    body: bytes
    retry_after_s: float


class Gone(OSError):
    """The connection ended before its answer was whole."""


class Link(asyncio.Protocol):
    """For one task. Opened by `open_link`."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._came = b""
        self._answer: asyncio.Future[Answer] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent."""
        return self.transport is not None and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is not derived from it

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self.transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Gone(str(exc or "closed")))
            self._answer.exception()  # whoever sends a request in pieces may not have come to wait for it

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        came = self._came = self._came + data if self._came else data
        end = came.find(HEAD_END)
        if end < 0 or self._answer is None or self._answer.done():
            return
        head = came[:end].lower()
        begin = end + len(HEAD_END)
        length = int(_value(head, LENGTH) or 0)
        if len(came) < begin + length:
            return
        self._came = came[begin + length :]
        status, wait = int(came[9:12]), _value(head, b"retry-after: ")
        self._answer.set_result(Answer(status, came[begin : begin + length], float(wait or 0)))

    async def ask(self, request: bytes) -> Answer:
        """Send a request; its answer.

        Raises:
            Gone: the connection ended before.
        """
        self._answer = asyncio.get_running_loop().create_future()
        self.send(request)
        return await self._answer

    def send(self, piece: bytes) -> None:
        """A piece of a request. Raises Gone."""
        if self.transport is None:
            raise Gone("not open")
        self.transport.write(piece)

    async def answered(self) -> Answer:
        """The answer to what was sent in pieces after `expect`. Raises Gone."""
        assert self._answer is not None
        return await self._answer

    def expect(self) -> None:
        """A request is sent in pieces from now on."""
        self._answer = asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """End it."""
        if self.transport is not None:
            self.transport.abort()


def _value(head: bytes, name: bytes) -> bytes:
    at = head.find(b"\r\n" + name)
    return head[at + 2 + len(name) :].partition(b"\r\n")[0] if at >= 0 else b""


async def open_link(address: str, port: int, trust: ssl.SSLContext | None) -> Link:
    """A new connection from `address` to a port of this machine. Raises OSError."""
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(
        Link, "127.0.0.1", port, local_addr=(address, 0), ssl=trust, server_hostname="localhost" if trust else None
    )
    return link


def build_request(method: str, path: str, token: str, body: bytes = b"") -> bytes:
    """A request as healthd sends it."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: centre\r\nAccept-Encoding: identity\r\nContent-Length: {len(body)}\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n\r\n"
    )
    return head.encode() + body
