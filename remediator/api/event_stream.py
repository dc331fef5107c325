"""`GET /v1/events/stream`: the audit log as server-sent events.

Nothing is buffered for a client but what its socket holds: each reads the log from its own position. A client that
stops reading is disconnected, and resumes with `Last-Event-ID`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from remediator.api.access_control import check_open_request, request_identity
from remediator.api.handler_context import Refusal, handler_context_of
from remediator.api.record_views import event_view
from vocabulary.messages.wire import encode_message

EVENTS_AT_ONCE = 200
HEARTBEAT_S = 15.0
UNREAD_S = 10.0  # a client that reads nothing for so long is disconnected
SEQ_DIGITS = 15


class _EventStreamResponse(Response):
    """Sends as fast as the client reads, and closes when it reads nothing."""

    media_type = "text/event-stream"

    def __init__(self, request: Request, after: int) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._request = request
        self._after = after

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        gate = handler_context_of(self._request).gate
        with gate.streams.one(request_identity(self._request).id) as seated:
            if not seated:
                raise Refusal(429, "too many streams are open", "close one", 5)
            await asyncio.wait_for(
                send({"type": "http.response.start", "status": 200, "headers": self.raw_headers}), UNREAD_S
            )
            gone = asyncio.create_task(_wait_for_disconnect(receive))
            try:
                await self._run(send, gone)
            finally:
                gone.cancel()

    async def _run(self, send: Send, gone: asyncio.Task[None]) -> None:
        with contextlib.suppress(asyncio.TimeoutError, Refusal):
            async for part in _parts_until_disconnect(_event_stream_parts(self._request, self._after), gone):
                body = {"type": "http.response.body", "body": part, "more_body": True}
                await asyncio.wait_for(send(body), UNREAD_S)
            if not gone.done():
                await asyncio.wait_for(send({"type": "http.response.body", "body": b""}), UNREAD_S)


async def stream_events(request: Request) -> Response:
    """Events after `Last-Event-ID`, or `after`; without either, from now on."""
    service = handler_context_of(request)
    text = request.headers.get("last-event-id") or request.query_params.get("after")
    if text is None:
        after = await asyncio.to_thread(service.journal.last_event)
    elif text.isascii() and text.isdecimal() and len(text) <= SEQ_DIGITS:
        after = int(text)
    else:
        raise Refusal(400, f"{text[:40]!r} is not an event number")
    return _EventStreamResponse(request, after)


async def _event_stream_parts(request: Request, after: int) -> AsyncGenerator[bytes, None]:
    service = handler_context_of(request)
    yield b"retry: 2000\n\n"
    with service.wakeups.subscription() as woken:
        while not service.wakeups.ended:
            check_open_request(request)
            woken.clear()
            found = await asyncio.to_thread(service.journal.events, after, EVENTS_AT_ONCE)
            for seq, event in found:
                yield b"id: %d\ndata: %b\n\n" % (seq, encode_message(event_view(seq, event)))
                after = seq
            if len(found) == EVENTS_AT_ONCE:
                continue
            try:
                await asyncio.wait_for(woken.wait(), HEARTBEAT_S)
            except asyncio.TimeoutError:
                yield b": still here\n\n"


async def _parts_until_disconnect(parts: AsyncGenerator[bytes, None], gone: asyncio.Task[None]) -> AsyncIterator[bytes]:
    """Yield the parts until the client disconnects, so that a page that was left frees its slot for the next one."""
    try:
        while True:
            part = asyncio.ensure_future(anext(parts))
            await asyncio.wait({part, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                part.cancel()
                with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                    await part
                return
            try:
                yield part.result()
            except StopAsyncIteration:
                return
    finally:
        await parts.aclose()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
