"""uvicorn's HTTP protocol with limits on header size and waiting time, and a shorter way for heartbeats."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

HEAD_BYTES_MAX = 64 << 10  # a request's path and headers; also bytes that are neither body nor a new request
PIPELINED_MAX = 16  # requests sent before their responses
KEEP_ALIVE_S = 75.0  # nodes report every 10 s; reconnecting each time is expensive with TLS
REARM_S = 15.0  # between two restarts of that time by heartbeats, which come by the thousand
LANE_BYTES_MAX = 64 << 10
LANE_PREFIX = b"POST /v1/nodes/"
# Exactly what healthd sends. Anything else, also if equivalent, is left to the parser.
LANE_REQUEST = re.compile(
    rb"POST /v1/nodes/([\w.~-]{1,255})/heartbeat HTTP/1\.1\r\n"
    rb"Host: [!-~]{1,300}\r\n"
    rb"Accept-Encoding: identity\r\n"
    rb"Content-Length: (\d{1,5})\r\n"
    rb"Authorization: Bearer ([!-~]{1,255})\r\n"
    rb"Content-Type: application/msgpack\r\n\r\n"
)
Lane = Callable[["BoundedHttpProtocol", str, str, bytes, float], bytes | None]


def certificate_names(certificate: dict[str, Any]) -> tuple[str, ...]:
    """Return the DNS names and common names of a certificate as `ssl` gives it, each once."""
    names = [str(value) for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    for part in certificate.get("subject", ()):
        names += [str(value) for kind, value in part if kind == "commonName"]
    return tuple(dict.fromkeys(names))


def _ignore_connection_end() -> None:
    """Default: no callback at the end of a connection."""


def _accept_any(_whose: str, _most: int) -> bool:
    """Default: no limit."""
    return True


def _no_lane() -> Lane | None:
    """Default: heartbeats take the usual way."""
    return None


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection. Headers must arrive within a deadline; a connection with a valid token may be idle for longer.

    The application finds `client_certificate_names` in a request's scope, and `known`, which it calls when the token is
    valid, with the token's owner and the owner's connection limit.
    """

    headers_s = 10.0
    gone: Callable[[], None] = staticmethod(_ignore_connection_end)  # called once, when the connection has ended
    seen: Callable[[str, int], bool] = staticmethod(_accept_any)  # a valid token was shown; is there room?
    stale: Callable[[], bool] = staticmethod(lambda: False)  # whether it was accepted under rules that have changed

    lane: Callable[[], Lane | None] = staticmethod(_no_lane)  # answers heartbeats; it changes when this process leads

    certificate_names: tuple[str, ...] = ()
    _late: asyncio.TimerHandle | None = None
    _armed_at = 0.0  # monotonic: when a heartbeat last restarted the time that the connection may be idle
    _begun: bytes = b""  # a heartbeat whose body is incomplete
    _known = False
    _waits_for_head = False  # a timer runs for incomplete headers
    _one_too_many = False  # over its token's limit: closed after the response
    _in_head = False
    _in_message = False  # a request has begun to arrive and is incomplete
    _held = 0  # bytes that the parser buffers since its last progress
    _too_long = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start waiting for a request."""
        super().connection_made(transport)
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        self.certificate_names = certificate_names(tls.getpeercert() or {}) if tls is not None else ()
        self._expect_head(self.headers_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Connection ended. Break reference cycles, which only the rare full collection would find."""
        self._stop_waiting()
        super().connection_lost(exc)
        gone, self.gone, self.seen = self.gone, _ignore_connection_end, _accept_any
        gone()
        self.pipeline.clear()
        self._forget_request()  # its handler still has it

    def data_received(self, data: bytes) -> None:
        """Receive bytes; those the parser must buffer are bounded."""
        if self._begun or data.startswith(LANE_PREFIX):
            data, self._begun = self._begun + data, b""
            if self._take_heartbeat(data):
                return
        self._held += len(data)
        super().data_received(data)
        if self._in_head and not self._waits_for_head:  # nearly all headers arrive whole and need no timer
            self._expect_head(self.headers_s)
        if self._held > HEAD_BYTES_MAX and not self.transport.is_closing():
            self._too_long = True
            self.send_400_response("")

    def _take_heartbeat(self, data: bytes) -> bool:
        """Answer a heartbeat, or keep its first part; return whether nothing is left to be parsed."""
        lane = self.lane()
        if lane is None or not self.idle or self._in_message or self.pipeline:
            return False
        if self.transport.is_closing() or self.flow.write_paused:  # it does not read its answers
            return False
        head = LANE_REQUEST.match(data)
        if head is None or self._one_too_many or self.stale():
            return False
        node, length, token = head.groups()
        missing = head.end() + int(length) - len(data)
        if missing > 0 and len(data) < LANE_BYTES_MAX:
            self._begun = data
            return True
        if missing:  # another request follows, or it is too long
            return False
        now = time.monotonic()
        answer = lane(self, node.decode(), token.decode(), data[head.end() :], now)
        if answer is None:
            return False
        self.server_state.total_requests += 1
        if now - self._armed_at > REARM_S:
            self._armed_at = now
            self._expect_head(KEEP_ALIVE_S)
        self.transport.write(answer)
        return True

    def admit(self, whose: str, most: int) -> bool:
        """Note the connection's owner, who may have `most`; return whether this one is among them."""
        self._is_known(whose, most)
        return not self._one_too_many

    def on_message_begin(self) -> None:
        """Headers begin."""
        super().on_message_begin()
        self.scope["client_certificate_names"] = self.certificate_names  # type: ignore[typeddict-unknown-key]  # our own
        self.scope["known"] = self._is_known  # type: ignore[typeddict-unknown-key]  # our own
        self.scope["arrived"] = time.monotonic()  # type: ignore[typeddict-unknown-key]  # our own
        self._in_head = self._in_message = True
        self._armed_at = 0.0
        self._waits_for_head = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Receive one header; trailers after the body are ignored."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Headers are complete."""
        self._held = 0
        self._in_head = False
        self._stop_waiting()
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES_MAX:
            self._too_long = True
            raise ValueError("the request head is too long")
        if len(self.pipeline) >= PIPELINED_MAX:
            raise ValueError("too many pipelined requests")
        super().on_headers_complete()
        if self._one_too_many or self.stale():
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Receive a piece of the body."""
        self._held = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Request is complete."""
        self._held = 0
        self._in_message = False
        super().on_message_complete()
        self._let_go()

    def on_response_complete(self) -> None:
        """Response is complete: wait for the next request, with one timer for any kind of waiting."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif not self._in_head:
            self._expect_head(KEEP_ALIVE_S if self._known else self.headers_s)
        self._let_go()

    def send_400_response(self, msg: str) -> None:
        """Answer that this is no valid request, or that its headers are too long, and close."""
        if not self._too_long:
            super().send_400_response(msg)
            return
        self.transport.write(STATUS_LINE[431] + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()

    @property
    def idle(self) -> bool:
        """Whether it waits for its next request."""
        return not self._in_head and not self._begun and (self._newest is None or self._newest.response_complete)

    def leave(self) -> None:
        """Close the connection."""
        self._give_up()

    def _is_known(self, whose: str, most: int) -> None:
        if self.seen(whose, most):
            self._known = True
        else:
            self._one_too_many = True
            if self._newest is not None:
                self._newest.keep_alive = False

    @property
    def _newest(self) -> RequestResponseCycle | None:
        """The newest request; None before the first, and when all are answered."""
        return cast("RequestResponseCycle | None", self.cycle)

    def _let_go(self) -> None:
        """Drop an answered request: a fleet's idle connections would keep many objects for the collector to traverse."""
        if not self._in_message and self._newest is not None and self._newest.response_complete:
            self._forget_request()

    def _forget_request(self) -> None:
        self.cycle = None  # type: ignore[assignment]  # as before the first request
        self.scope = {}  # type: ignore[typeddict-item]  # same
        self.headers = []

    def _expect_head(self, within_s: float) -> None:
        self._stop_waiting()
        self._waits_for_head = True
        self._late = self.loop.call_later(within_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
