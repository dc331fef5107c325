"""Heads of requests: what is served, what is refused and how, and that it never depends on how the bytes arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.http_server.http_message import HEAD_BYTES_MAX, HEADERS_MAX, BadRequest, Reply, read_head, render_reply

GET = b"GET /v1/verdict?only=xid HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\n\r\n"


def outcome(data: bytes) -> object:
    """What is made of these bytes, in a form that can be compared."""
    try:
        return read_head(data)
    except BadRequest as error:
        return error.status


def test_a_request_is_read() -> None:
    read = read_head(GET + b"rest")
    assert read is not None
    request, size = read
    assert (request.method, request.target, request.path) == ("GET", "/v1/verdict?only=xid", "/v1/verdict")
    assert request.headers == {"host": "x", "accept": "text/plain"}
    assert (request.length, size) == (None, len(GET))


@pytest.mark.parametrize(
    ("head", "target"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", "/"),
        (b"GET http://n1:9400/metrics?a=b HTTP/1.1\r\nHost: n1\r\n\r\n", "/metrics?a=b"),
        (b"HEAD /livez HTTP/1.1\r\nhOsT:\r\n\r\n", "/livez"),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\nAccept: a\r\nAccept: b\r\n\r\n", "/livez"),
    ],
)
def test_what_the_protocol_allows_is_taken(head: bytes, target: str) -> None:
    read = read_head(head)
    assert read is not None
    assert read[0].target == target


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"get / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET x HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET / HTTP/1.0\n\n", 400),
        (b"GET / HTTP/1.0\r\nX: a\nY: b\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\nX: a\rY: b\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\nX: a\x00b\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\nX: a\x00", 400),  # at once: nothing that may follow makes it right
        (b"GET / HTTP/1.0\r\nX : a\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\n X: folded\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\nX\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\nExpect: everything\r\n\r\n", 417),
        (b"GET /" + b"a" * HEAD_BYTES_MAX, 431),
        (b"GET / HTTP/1.0\r\n" + b"X: y\r\n" * (HEADERS_MAX + 1) + b"\r\n", 431),
        (b"POST / HTTP/1.0\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nContent-Length: 1, 1\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nContent-Length: +1\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nContent-Length: 0x1\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nContent-Length: \xb2\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nContent-Length:\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nContent-Length: 18446744073709551616\r\n\r\n", 413),
        (b"POST / HTTP/1.0\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding:\x0bchunked\r\n\r\n", 400),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(head: bytes, status: int) -> None:
    assert outcome(head) == status


@pytest.mark.parametrize(("version", "wants"), [(b"1.0", False), (b"1.1", True)])
def test_only_who_knows_of_it_is_told_to_go_on(version: bytes, *, wants: bool) -> None:
    read = read_head(b"POST / HTTP/%b\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n" % version)
    assert read is not None
    assert read[0].wants_continue is wants


@given(st.binary(max_size=200) | st.sampled_from([GET, b"POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc"]), st.data())
def test_how_the_bytes_arrive_changes_nothing(data: bytes, draw: st.DataObject) -> None:
    whole = outcome(data)
    part = outcome(data[: draw.draw(st.integers(0, len(data)))])
    assert part is None or part == whole


@given(st.binary(max_size=100))
def test_a_reply_is_one_whatever_its_body(body: bytes) -> None:
    head, _, rest = render_reply(Reply(200, "text/plain", body), 0.0, with_body=True).partition(b"\r\n\r\n")
    assert rest == body
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"Date: Thu, 01 Jan 1970 00:00:00 GMT" in head
    assert render_reply(Reply(200, "text/plain", body), 0.0, with_body=False) == head + b"\r\n\r\n"
