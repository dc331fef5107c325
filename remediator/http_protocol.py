"""uvicorn's HTTP protocol, and two things it lacks: a head that does not come ends the connection; who a client certificate names."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


def certificate_names(certificate: dict[str, Any]) -> tuple[str, ...]:
    """DNS names and common names of a certificate as `ssl` tells it, each once."""
    names = [str(value) for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    for part in certificate.get("subject", ()):
        names += [str(value) for kind, value in part if kind == "commonName"]
    return tuple(dict.fromkeys(names))


def protocol_with(headers_s: float) -> type[HttpToolsProtocol]:
    """The protocol for a server that gives every request's head so many seconds."""

    class Careful(HttpToolsProtocol):
        _late: asyncio.TimerHandle | None = None
        _names: tuple[str, ...] = ()

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
            super().connection_made(transport)
            tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
            self._names = certificate_names(tls.getpeercert() or {}) if tls is not None else ()
            self._expect_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_came()
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.scope["client_certificate_names"] = self._names  # type: ignore[typeddict-unknown-key]  # our own
            self._expect_head()

        def on_headers_complete(self) -> None:
            self._head_came()
            super().on_headers_complete()

        def _expect_head(self) -> None:
            self._head_came()
            self._late = self.loop.call_later(headers_s, self._give_up)

        def _head_came(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def _give_up(self) -> None:
            if not self.transport.is_closing():
                self.transport.close()

    return Careful
