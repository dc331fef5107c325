"""The head of a request to a node's own pages: any process of the node, and whoever reaches its port, may send one."""

from __future__ import annotations

from healthd.http_server.http_message import HEAD_BYTES_MAX, LENGTH_DIGITS_MAX, BadRequest, Request, read_head
from tests.fuzz.target import Target


def _read(data: bytes) -> tuple[Request, int] | BadRequest | None:
    try:
        return read_head(data)
    except BadRequest as error:
        return error


def judge(data: bytes) -> None:
    """Never another error; the same whatever comes after the head; no header that could be read in two ways."""
    read = _read(data)
    if isinstance(read, BadRequest):
        if not 400 <= read.status < 600 or not read.todo:
            raise AssertionError("a refusal that says nothing")
        return
    if read is None:
        if len(data) > HEAD_BYTES_MAX:
            raise AssertionError("more is waited for than is read")
        return
    request, size = read
    if _read(data[:size]) != read or _read(data[:size] + b"GET / HTTP/1.0\r\n\r\n") != read:
        raise AssertionError("what follows a head changes it")
    if not request.target.startswith("/") or any(
        ord(letter) < 32 and letter != "\t" for value in request.headers.values() for letter in value
    ):
        raise AssertionError("a control character came through")
    if request.length is not None and not 0 <= request.length < 10**LENGTH_DIGITS_MAX:
        raise AssertionError("a length that is none")


TARGET = Target(
    judge,
    (
        b"GET /v1/verdict?only=xid HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\n\r\n",
        b"POST /v1/preflight HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET http://n1/metrics HTTP/1.1\r\nHost: n1\r\n\r\n",
        b"GET / HTTP/1.0\nX: y\n\n",
    ),
)
