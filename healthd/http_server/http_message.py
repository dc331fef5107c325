"""HTTP/1 messages: the head of a request, and a whole reply. Pure.

Parsing is strict: a request that two parsers could read differently is rejected.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import NamedTuple

from vocabulary.messages.wire import Problem, encode_message

HEAD_BYTES_MAX = 8192
HEADERS_MAX = 64
LENGTH_DIGITS_MAX = 9

_END = b"\r\n\r\n"
_BARE_LINE_END = re.compile(rb"(?<!\r)\n|\r(?=[^\n])")
_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) ([\x21-\x7e]+) HTTP/(\d)\.(\d)")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")
_ABSOLUTE = re.compile(r"https?://[^/?#]*")
_NO_CONTROL = re.compile(rb"[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*")


_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    411: "Length Required",
    413: "Content Too Large",
    417: "Expectation Failed",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class Request(NamedTuple):
    """One request without its body. Header names are lower case; `length` is None if not announced."""

    method: str
    target: str
    headers: Mapping[str, str]
    length: int | None = None
    wants_continue: bool = False

    @property
    def path(self) -> str:
        """Return the target without its query."""
        return self.target.partition("?")[0]


class BadRequest(Exception):
    """The request cannot be answered. Carries the status, the error text, and in `todo` what to send instead."""

    def __init__(self, status: int, error: str, todo: str) -> None:
        super().__init__(error)
        self.status, self.todo = status, todo


class Reply(NamedTuple):
    """A reply; the headers common to all replies are added to it."""

    status: int
    kind: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def read_head(data: bytes | bytearray) -> tuple[Request, int] | None:
    """Return the request at the start of `data` and the size of its head; None while the head is incomplete.

    Raises:
        BadRequest: it is not a request, or not one that is served here.
    """
    end = data.find(_END)
    head = bytes(data[: HEAD_BYTES_MAX + 1] if end < 0 else data[:end])
    if _BARE_LINE_END.search(head) or not _NO_CONTROL.fullmatch(head):
        raise BadRequest(400, "the head holds a control character or a bare line end", "end each line with CR LF")
    if len(head) + (0 if end < 0 else len(_END)) > HEAD_BYTES_MAX:
        raise BadRequest(
            431, f"the head is longer than {HEAD_BYTES_MAX} bytes", "send a shorter path and fewer headers"
        )
    if end < 0:
        return None
    return _parse_request(head), end + len(_END)


def _parse_request(head: bytes) -> Request:
    first, *lines = head.split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise BadRequest(400, "this is not an HTTP request", "send for example: GET /v1/verdict HTTP/1.1")
    if line[3] != b"1":
        raise BadRequest(505, "only HTTP/1.0 and HTTP/1.1 are supported", "use HTTP/1.1")
    headers = _parse_headers(lines)
    newer = line[4] != b"0"
    if newer and "host" not in headers:
        raise BadRequest(400, "an HTTP/1.1 request needs a Host header", "send a Host header")
    target = _ABSOLUTE.sub("", line[2].decode(), count=1)
    if not target.startswith("/"):
        raise BadRequest(400, "the path does not begin with /", "use for example /v1/verdict")
    expected = headers.get("expect", "").lower()
    if expected not in ("", "100-continue"):
        raise BadRequest(417, "only Expect: 100-continue is supported", "leave the Expect header out")
    return Request(line[1].decode(), target, headers, _parse_length(headers), newer and expected != "")


def _parse_headers(lines: list[bytes]) -> dict[str, str]:
    if len(lines) > HEADERS_MAX:
        raise BadRequest(431, f"more than {HEADERS_MAX} headers", "send fewer headers")
    headers: dict[str, str] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise BadRequest(
                400, "a header line is malformed", "send NAME: VALUE, unfolded, without a blank before the colon"
            )
        name, value = header[1].decode().lower(), header[2].decode("latin-1")
        if name in headers and name in ("host", "content-length", "transfer-encoding", "expect"):
            raise BadRequest(400, f"the header {name} is there twice", "send it once")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _parse_length(headers: Mapping[str, str]) -> int | None:
    """Return the announced body size. Chunked bodies are not supported."""
    length = headers.get("content-length")
    if "transfer-encoding" in headers:
        if length is not None:
            raise BadRequest(400, "the body has two lengths", "send Content-Length alone")
        raise BadRequest(411, "chunked bodies are not supported", "send Content-Length in place of Transfer-Encoding")
    if length is None:
        return None
    if not (length.isascii() and length.isdecimal()):
        raise BadRequest(400, "Content-Length is not a number", "send the number of bytes of the body")
    if len(length) > LENGTH_DIGITS_MAX:
        raise BadRequest(413, "the body is too large", "send a smaller one")
    return int(length)


def problem_reply(status: int, error: str, todo: str, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    """Build a reply that says what is wrong and what to do."""
    return Reply(status, "application/json", encode_message(Problem(error=error, todo=todo)), headers)


def render_reply(reply: Reply, at: float, *, with_body: bool) -> bytes:
    """Return the bytes of a reply sent `at` (UTC seconds); the connection is closed after it."""
    lines = [
        f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}",
        "Server: healthd",
        f"Date: {time.strftime('%a, %d %b %Y %H:%M:%S GMT', time.gmtime(at))}",
        f"Content-Type: {reply.kind}",
        f"Content-Length: {len(reply.body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in reply.headers),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (reply.body if with_body else b"")
