"""One kept connection to one HTTP server. For one thread.

The standard library's client instead of `requests`: a node pays 7 MiB of memory for that one, and uses nothing of it
(docs/decisions/0005-http-client-of-the-node.md). Proxies of the environment are not used, redirects are not followed.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

CONNECT_S = 5.0
ANSWER_BYTES_MAX = 16 << 20


class Answer(NamedTuple):
    """What came back. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Trust(NamedTuple):
    """Whose certificates are believed, and what this node shows of its own. None: the system's, and none."""

    ca_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """For one connection. Raises OSError where a file cannot be read or is none."""
        context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context


class HttpError(Exception):
    """No whole answer came."""


class HttpClient:
    """Requests to `url`'s server; `base` is the path that stands before every request's own."""

    def __init__(self, url: str, trust: Trust = Trust()) -> None:  # noqa: B008 - immutable
        parts = urlsplit(url)
        self._https = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._base = parts.path.rstrip("/")
        self._trust = trust
        self._connection: http.client.HTTPConnection | None = None

    def request(self, method: str, path: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> Answer:
        """One request and its whole answer.

        A kept connection that the server has closed meanwhile is opened anew, once: it may have been idle too long.

        Raises:
            HttpError: the server cannot be reached, does not answer in time, or says what is no HTTP.
        """
        kept = self._connection is not None
        try:
            return self._ask(method, path, body, headers, timeout_s)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            self.close()
            if not kept:
                raise HttpError(_words(error)) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise HttpError(_words(error)) from error
        try:
            return self._ask(method, path, body, headers, timeout_s)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise HttpError(_words(error)) from error

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> Answer:
        connection = self._connection or self._connect()
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        connection.request(method, self._base + path, body=body or None, headers=dict(headers))
        answer = connection.getresponse()
        content = answer.read(ANSWER_BYTES_MAX + 1)
        if len(content) > ANSWER_BYTES_MAX:
            raise http.client.HTTPException(f"an answer of more than {ANSWER_BYTES_MAX >> 20} MiB")
        if answer.length:
            raise http.client.IncompleteRead(content, answer.length)
        if answer.will_close:
            self.close()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, content)

    def _connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_S)
        if self._https:  # the files are read each time: a new certificate takes effect without a restart
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=CONNECT_S, context=self._trust.context()
            )
        try:
            connection.connect()
        except BaseException:
            with contextlib.suppress(OSError):
                connection.close()
            raise
        self._connection = connection
        return connection


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
