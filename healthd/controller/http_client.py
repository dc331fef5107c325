"""One kept connection to one HTTP server. For one thread.

Uses the standard library's client instead of `requests`, which would cost a node 7 MiB of memory for unused features
(docs/decisions/0005-http-client-of-the-node.md). Proxies of the environment are not used, redirects are not followed.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

CONNECT_S = 3.0
ANSWER_BYTES_MAX = 16 << 20


class HttpResponse(NamedTuple):
    """An HTTP response. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class TlsCredentials(NamedTuple):
    """The trusted CAs, and this node's client certificate. None: the system's, and none."""

    ca_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return a context for one connection. Raises OSError if a file cannot be read or is invalid."""
        context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context


class HttpError(Exception):
    """No complete answer arrived."""


class HttpClient:
    """Requests to `url`'s server; `base` is the path prefix of every request.

    After silence, the next of the server name's addresses is used, if it has several.
    """

    def __init__(self, url: str, trust: TlsCredentials = TlsCredentials()) -> None:  # noqa: B008 - immutable
        parts = urlsplit(url)
        self._https = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._base = parts.path.rstrip("/")
        self._trust = trust
        self._connection: http.client.HTTPConnection | None = None
        self._address = 0  # index of the name's address that is tried first
        self._awaiting: tuple[socket.socket, float] | None = None  # waits for its first byte, since when
        self._cut = False

    def cut_if_silent(self, patience_s: float) -> bool:
        """Abort a request without an answer within `patience_s`; return whether there was one. Thread-safe.

        On a kept connection, which may have died unnoticed, the request is then repeated on a fresh one.
        """
        awaiting = self._awaiting
        if awaiting is None or time.monotonic() - awaiting[1] < patience_s:
            return False
        self._cut = True
        with contextlib.suppress(OSError):  # the plain socket's: TLS would send a close notification
            socket.socket.shutdown(awaiting[0], socket.SHUT_RDWR)
        return True

    def request(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> HttpResponse:
        """Send one request and return its whole answer.

        A kept connection that the server has closed meanwhile is reopened, once: it may have been idle too long.

        Raises:
            HttpError: the server is unreachable, does not answer in time, or answers with invalid HTTP.
        """
        kept = self._connection is not None
        try:
            return self._ask(method, path, body, headers, timeout_s)
        except (OSError, http.client.HTTPException) as error:
            closed = isinstance(error, (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError))
            again = kept and (closed or self._cut)
            failed = self._failed(error)
            if not again:
                raise failed from error
        try:
            return self._ask(method, path, body, headers, timeout_s)
        except (OSError, http.client.HTTPException) as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> HttpResponse:
        self._cut = False
        connection = self._connection or self._connect()
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        connection.request(method, self._base + path, body=body or None, headers=dict(headers))
        self._awaiting = (connection.sock, time.monotonic())
        try:
            answer = connection.getresponse()
        finally:
            self._awaiting = None
        with answer:  # an answer that is not read to its end would keep its socket
            content = answer.read(ANSWER_BYTES_MAX + 1)
            if len(content) > ANSWER_BYTES_MAX:
                raise http.client.HTTPException(f"an answer of more than {ANSWER_BYTES_MAX >> 20} MiB")
            if answer.length:
                raise http.client.IncompleteRead(content, answer.length)
        if answer.will_close:
            self.close()
        return HttpResponse(answer.status, {name.lower(): value for name, value in answer.getheaders()}, content)

    def _connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._host, self._port)
        context = None
        if self._https:  # the files are read each time: a new certificate takes effect without a restart
            context = self._trust.context()
            connection = http.client.HTTPSConnection(self._host, self._port, context=context)
        plain = self._reach(connection.port)
        try:
            connection.sock = plain if context is None else context.wrap_socket(plain, server_hostname=self._host)
        except BaseException:
            plain.close()
            raise
        self._connection = connection
        return connection

    def _reach(self, port: int) -> socket.socket:
        """Connect to the first server address that accepts, starting with the one whose turn it is."""
        found = socket.getaddrinfo(self._host, port, type=socket.SOCK_STREAM)
        first = self._address % len(found)
        problem = OSError("the name has no address")
        for family, kind, protocol, _, address in found[first:] + found[:first]:
            candidate = socket.socket(family, kind, protocol)
            try:
                candidate.settimeout(CONNECT_S)
                candidate.connect(address)
                candidate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                candidate.close()
                problem = error
            else:
                return candidate
        raise problem

    def _failed(self, error: Exception) -> HttpError:
        """Close a failed connection; after silence, the next one is to another address."""
        cut, self._cut = self._cut, False
        if cut or isinstance(error, TimeoutError):
            self._address += 1
        self.close()
        return HttpError(
            "no answer in time, while a fatal finding waits to be reported" if cut else _describe_error(error)
        )


def _describe_error(error: Exception) -> str:
    return str(error) or type(error).__name__
