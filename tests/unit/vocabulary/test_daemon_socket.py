"""One call to healthd's socket: what comes back, and what counts as no response."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from healthctl.exit_codes import Failure
from healthctl.node_check.evidence_client import fetch_evidence
from vocabulary.daemon_socket import NoResponseError, call_daemon

Serve = Callable[[Callable[[socket.socket], None]], str]
STUCK = "check whether healthd is stuck"
NO_HEALTHD = "check that this is healthd's socket"


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serve]:
    """A socket whose one connection is handled by the given function."""
    listener, threads = socket.socket(socket.AF_UNIX), []

    def start(handle: Callable[[socket.socket], None]) -> str:
        path = str(tmp_path / "s")
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                handle(connection)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return path

    yield start
    for thread in threads:
        thread.join(30)
    listener.close()


def answer(text: bytes) -> Callable[[socket.socket], None]:
    def handle(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(text)

    return handle


def drip(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"x")
        time.sleep(0.01)


def test_a_document_is_posted_with_its_length(serving: Serve) -> None:
    got: list[bytes] = []

    def handle(connection: socket.socket) -> None:
        got.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.0 201 Created\r\n\r\nthanks")

    assert call_daemon(serving(handle), "/v1/x", 30, b"{}") == (201, b"thanks")
    head, _, body = got[0].partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [b"POST /v1/x HTTP/1.0", b"Content-Type: application/json", b"Content-Length: 2"]
    assert body == b"{}"


@pytest.mark.parametrize(
    ("handle", "deadline_s", "says"),
    [
        (answer(b""), 30, f"an empty response; {NO_HEALTHD}"),
        (answer(b"220 smtp.example ESMTP\r\n"), 30, f"220 smtp.example ESMTP; {NO_HEALTHD}"),
        (answer(b"HTTP/1.0 what\r\n\r\n"), 30, NO_HEALTHD),
        (answer(b"HTTP/1.0 200 OK\r\n\r\n" + bytes(2000)), 30, NO_HEALTHD),
        (drip, 0.1, STUCK),
    ],
)
def test_what_is_no_response_says_what_to_check(
    serving: Serve, handle: Callable[[socket.socket], None], deadline_s: float, says: str
) -> None:
    with pytest.raises(NoResponseError, match=says):
        call_daemon(serving(handle), "/", deadline_s, bytes_max=1000 if deadline_s == 30 else 1 << 20)


def test_evidence_is_fetched_whole_or_refused_with_healthds_words(serving: Serve) -> None:
    problem = b'HTTP/1.0 403 Forbidden\r\n\r\n{"error": "only root", "todo": "use sudo"}'
    with pytest.raises(Failure, match="403: only root; use sudo"):
        fetch_evidence(serving(answer(problem)), 30)
