"""uvicorn's HTTP protocol, and what it lacks: bounds on the head and on waiting for it; who a client certificate names."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

HEAD_BYTES_MAX = 64 << 10  # a request's path and headers; also what may come that is neither body nor a new request
PIPELINED_MAX = 16  # requests sent ahead of their answers
KEEP_ALIVE_S = 75.0  # nodes report every 10 s: shorter, and each report would open a connection, with TLS a dear one


def certificate_names(certificate: dict[str, Any]) -> tuple[str, ...]:
    """DNS names and common names of a certificate as `ssl` tells it, each once."""
    names = [str(value) for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    for part in certificate.get("subject", ()):
        names += [str(value) for kind, value in part if kind == "commonName"]
    return tuple(dict.fromkeys(names))


def _ignore_connection_end() -> None:
    """Nobody waits for the end of a connection."""


def _accept_any(_whose: str, _most: int) -> bool:
    """There is room for all."""
    return True


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection. Every head has so many seconds to come; who showed a good token may be idle for longer.

    The application finds `client_certificate_names` in a request's scope, and `known`, to call when its token is good: with
    whose it is, and how many connections they may have.
    """

    headers_s = 10.0
    gone: Callable[[], None] = staticmethod(_ignore_connection_end)  # called once, when the connection ended
    seen: Callable[[str, int], bool] = staticmethod(_accept_any)  # a good token was shown; is there room?
    stale: Callable[[], bool] = staticmethod(lambda: False)  # whether it was let in under rules that have changed

    _late: asyncio.TimerHandle | None = None
    _names: tuple[str, ...] = ()
    _known = False
    _waits_for_head = False  # a timer runs for the head that is coming
    _one_too_many = False  # of those with the same token: it ends with its answer
    _in_head = False
    _in_message = False  # a request has begun to come and is not whole
    _held = 0  # bytes since the parser last came on: it keeps them
    _too_long = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for a request."""
        super().connection_made(transport)
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        self._names = certificate_names(tls.getpeercert() or {}) if tls is not None else ()
        self._expect_head(self.headers_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over. What refers to it in a circle is cut: only the rare collection of all would find it."""
        self._stop_waiting()
        super().connection_lost(exc)
        gone, self.gone, self.seen = self.gone, _ignore_connection_end, _accept_any
        gone()
        self.pipeline.clear()
        self._forget_request()  # who answers it has it still

    def data_received(self, data: bytes) -> None:
        """Bytes came; those that the parser must keep are bounded."""
        self._held += len(data)
        super().data_received(data)
        if self._in_head and not self._waits_for_head:  # nearly every head comes whole, and needs no timer
            self._expect_head(self.headers_s)
        if self._held > HEAD_BYTES_MAX and not self.transport.is_closing():
            self._too_long = True
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self.scope["client_certificate_names"] = self._names  # type: ignore[typeddict-unknown-key]  # our own
        self.scope["known"] = self._is_known  # type: ignore[typeddict-unknown-key]  # our own
        self._in_head = self._in_message = True
        self._waits_for_head = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; what comes after the body is nobody's."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._held = 0
        self._in_head = False
        self._stop_waiting()
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES_MAX:
            self._too_long = True
            raise ValueError("the head is too long")
        if len(self.pipeline) >= PIPELINED_MAX:
            raise ValueError("too many requests ahead of their answers")
        super().on_headers_complete()
        if self._one_too_many or self.stale():
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._held = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._held = 0
        self._in_message = False
        super().on_message_complete()
        self._let_go()

    def on_response_complete(self) -> None:
        """It was answered; wait for the next, with one timer for whatever we wait for."""
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
        """Say that this is no request, or one with too long a head, and end it."""
        if not self._too_long:
            super().send_400_response(msg)
            return
        self.transport.write(STATUS_LINE[431] + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()

    @property
    def idle(self) -> bool:
        """Whether it waits for its next request."""
        return not self._in_head and (self._newest is None or self._newest.response_complete)

    def leave(self) -> None:
        """End it."""
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
        """The newest request; None before the first, and when all were answered."""
        return cast("RequestResponseCycle | None", self.cycle)

    def _let_go(self) -> None:
        """Of a request that came whole and was answered: a fleet's connections rest, and all they kept would be walked over."""
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
