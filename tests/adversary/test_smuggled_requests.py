"""Requests in which two readers could see a different end: none of them makes the controller answer a second one."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from remediator.server_config import AccessLimits
from tests.unit.remediator.api.test_tls_listener import Door

HIDDEN = b"GET /livez HTTP/1.1\r\nHost: hidden\r\nConnection: close\r\n\r\n"
SIZE = str(len(HIDDEN)).encode()
HEAD = b"POST /v1/enrol HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    made = Door(tmp_path_factory.mktemp("door"), limits=AccessLimits(headers_s=2, body_s=2))
    yield made
    made.close()


def answers(door: Door, sent: bytes) -> list[bytes]:
    """The statuses of all that comes back until the controller ends the connection, which waits for nobody for long."""
    said = b""
    with socket.create_connection(("127.0.0.1", door.port), timeout=60) as caller:
        caller.sendall(sent)
        with contextlib.suppress(ConnectionError):
            while piece := caller.recv(4096):
                said += piece
    return [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]]


def test_two_requests_get_two_answers(door: Door) -> None:
    assert answers(door, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN) == [b"200", b"200"]


@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"Content-Length: " + SIZE + b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + HIDDEN,
        HEAD + b"Content-Length: 0\r\nContent-Length: " + SIZE + b"\r\n\r\n" + HIDDEN,
        HEAD + b"Content-Length: 0, " + SIZE + b"\r\n\r\n" + HIDDEN,
        HEAD + b"Content-Length: -1\r\n\r\n" + HIDDEN,
        HEAD + b"Content-Length: +0\r\n\r\n" + HIDDEN,
        HEAD + b"Content-Length: 0x0\r\n\r\n" + HIDDEN,
        HEAD + b"Content-Length: 18446744073709551616\r\n\r\n" + HIDDEN,
        HEAD + b"Content-Length : 0\r\n\r\n" + HIDDEN,
        HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
        HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + HIDDEN,
        HEAD + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
        HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0;\n\r\n" + HIDDEN,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + HIDDEN,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\n\r\n" + HIDDEN,
        HEAD + b"X: y\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + HIDDEN,
        HEAD + b"X: a\x00b\r\n\r\n" + HIDDEN,
        HEAD + b"X: a\r\n folded\r\nContent-Length: 0\r\n Content-Length: 9\r\n\r\n" + HIDDEN,
        b"POST /v1/enrol HTTP/1.1\r\n\x01Host: x\r\n\r\n" + HIDDEN,
        b"POST /v1/enrol\r\n\r\n" + HIDDEN,
        b"POST /v1/enrol HTTP/9.9\r\nHost: x\r\n\r\n" + HIDDEN,
        b"CONNECT hidden:80 HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    ],
)
def test_what_could_be_read_in_two_ways_is_read_in_none(door: Door, sent: bytes) -> None:
    assert b"200" not in answers(door, sent)
