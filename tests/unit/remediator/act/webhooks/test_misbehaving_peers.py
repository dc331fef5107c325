"""Receivers that answer wrongly, late, endlessly or not at all."""

from __future__ import annotations

import contextlib
import email.utils
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from remediator.notifications.http_post import HttpPostRequest, send_http_post
from tests.unit.remediator.act.webhooks.peer import Peer

LONG_S = 60.0


def ask(peer: Peer, timeout_s: float = LONG_S, ca_file: str = "", url: str = "") -> tuple[bool, str, float | None]:
    answer = send_http_post(
        HttpPostRequest(url or peer.url, b"{}", {"content-type": "application/json"}, ca_file), timeout_s
    )
    return answer.taken, answer.words.replace(f"127.0.0.1:{peer.server_address[1]}", "peer"), answer.retry_after_s


def test_it_is_taken_if_the_peer_says_so(peer: Peer) -> None:
    peer.status = 202
    assert ask(peer) == (True, "peer: status 202", None)
    ((path, headers, body),) = peer.got
    assert (path, headers["content-type"], body) == ("/secret-path", "application/json", b"{}")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_takes_nothing_and_is_not_followed(peer: Peer, status: int) -> None:
    peer.status = status
    peer.headers = {"location": peer.url}
    taken, words, _ = ask(peer)
    assert not taken
    assert words == f"peer: status {status}, moved; redirects are not followed, configure the new URL"
    assert len(peer.got) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 418])
def test_a_refusal_is_tried_again_slowly(peer: Peer, status: int) -> None:
    peer.status = status
    answer = send_http_post(HttpPostRequest(peer.url, b"", {}), LONG_S)
    assert (answer.taken, answer.refused, answer.down) == (False, True, False)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 599])
def test_trouble_of_the_peer_s_own_is_tried_again_soon(peer: Peer, status: int) -> None:
    peer.status = status
    answer = send_http_post(HttpPostRequest(peer.url, b"", {}), LONG_S)
    assert (answer.taken, answer.refused, answer.down) == (False, False, True)


@pytest.mark.parametrize(
    ("value", "seconds"), [("7", 7.0), ("0", 0.0), ("soon", None), ("-3", None), ("٣", None), ("", None)]
)
def test_retry_after_in_seconds(peer: Peer, value: str, seconds: float | None) -> None:
    peer.status = 429
    peer.headers = {"retry-after": value.encode().decode("latin-1")}
    assert ask(peer)[2] == seconds


def test_retry_after_as_a_date(peer: Peer) -> None:
    peer.status = 503
    peer.headers = {"retry-after": email.utils.formatdate(time.time() + 100, usegmt=True)}
    found = ask(peer)[2]
    assert found is not None
    assert 0 < found <= 101


def drip(connection: socket.socket, line: bytes) -> None:
    with contextlib.suppress(OSError), connection:
        while True:
            connection.sendall(line)
            time.sleep(0.02)


@pytest.mark.parametrize("line", [b"x", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1"])
def test_a_peer_that_drips_is_cut_off(peer: Peer, line: bytes) -> None:
    peer.act = lambda connection: drip(connection, line)
    taken, words, _ = ask(peer, timeout_s=0.3)
    assert not taken
    assert words.startswith("peer: ")


def test_a_peer_that_drips_headers_is_cut_off_and_said_to_be_late(peer: Peer) -> None:
    def act(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nx-a: ")
        drip(connection, b"y")

    peer.act = act
    assert ask(peer, timeout_s=0.3) == (False, "peer: no answer within 0.3 s", None)


def test_a_peer_that_says_nothing_is_left(peer: Peer) -> None:
    gate = threading.Event()
    peer.act = lambda _: (gate.wait(60), None)[1]
    assert ask(peer, timeout_s=0.2) == (False, "peer: no answer within 0.2 s", None)
    gate.set()


def test_a_flood_is_not_read(peer: Peer) -> None:
    left = threading.Event()

    def act(connection: socket.socket) -> None:
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n")
            while True:
                connection.sendall(b"x" * 65536)
        except OSError:
            left.set()

    peer.act = act
    assert ask(peer)[0]
    assert left.wait(60)


def test_headers_without_end_are_refused(peer: Peer) -> None:
    peer.headers = {f"x-{n}": "y" for n in range(1000)}
    taken, words, _ = ask(peer)
    assert (taken, words) == (False, "peer: HTTPException")


def test_a_connection_that_is_dropped_is_said(peer: Peer) -> None:
    peer.act = lambda connection: connection.shutdown(socket.SHUT_RDWR)
    assert not ask(peer)[0]


def test_a_certificate_that_nobody_vouches_for_is_refused_unless_it_is_named(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    peer = Peer(context)
    try:
        assert ask(peer) == (False, "peer: TLS: CERTIFICATE_VERIFY_FAILED", None)
        assert peer.got == []
        assert ask(peer, ca_file=str(certificate)) == (True, "peer: status 200", None)
        other_name = peer.url.replace("127.0.0.1", "localhost")
        assert not ask(peer, ca_file=str(certificate), url=other_name)[0]
    finally:
        peer.close()


def test_a_handshake_that_never_ends_is_cut_off() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"https://127.0.0.1:{server.getsockname()[1]}/"
        taken = threading.Thread(target=lambda: drip(server.accept()[0], b"\x16"), daemon=True)
        taken.start()
        assert not send_http_post(HttpPostRequest(url, b"", {}), 0.3).taken


def test_a_proxy_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("no_proxy", "")
        threading.Thread(target=lambda: drip(server.accept()[0], b"x"), daemon=True).start()
        assert not send_http_post(HttpPostRequest("https://receiver.invalid/x", b"", {}), 0.3).taken


def test_a_proxy_of_the_environment_is_used(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", peer.url)
    monkeypatch.setenv("no_proxy", "")
    assert send_http_post(HttpPostRequest("http://receiver.invalid/x", b"{}", {}), LONG_S).taken
    assert peer.got[0][0] == "http://receiver.invalid/x"


def test_a_password_in_a_url_is_sent_as_such_and_never_written_down(peer: Peer) -> None:
    url = peer.url.replace("127.0.0.1", "me:pa%20ss@127.0.0.1")
    taken, words, _ = ask(peer, url=url)
    assert taken
    assert "me" not in words.removeprefix("peer: ")
    assert peer.got[0][1]["authorization"] == "Basic bWU6cGEgc3M="
