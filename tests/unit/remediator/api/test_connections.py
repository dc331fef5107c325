"""How many connections one token may keep, over real sockets."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

from remediator.server_config import AccessLimits
from tests.unit.remediator.api.test_tls_listener import Door


def answered(door: Door, who: str, path: str, caller: socket.socket | None = None) -> tuple[socket.socket, str]:
    """A connection on which one question was answered, and the head of that answer."""
    caller = caller or socket.create_connection(("127.0.0.1", door.port), timeout=60)
    caller.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {door.inside.token[who]}\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"}"):
        answer += caller.recv(4096) or b"the end}"
    return caller, answer.decode().partition("\r\n\r\n")[0].lower()


def ended(caller: socket.socket) -> bool:
    """Waits until the other side has ended a connection on which nothing is under way."""
    with caller, contextlib.suppress(ConnectionError):
        return caller.recv(1) == b""
    return True


def test_one_token_holds_so_many_connections_and_the_oldest_idle_one_makes_room(tmp_path: Path) -> None:
    door = Door(tmp_path, None, AccessLimits(connections_per_node=3))
    try:
        other, _ = answered(door, "n2", "/v1/nodes/n2/orders")
        mine = [answered(door, "n1", "/v1/nodes/n1/orders")[0] for _ in range(8)]
        assert all(ended(caller) for caller in mine[:5])
        assert len(door.server.listener.members) == 4
        assert len(door.server.listener.guests) == 0
        for caller, who in ((other, "n2"), *((caller, "n1") for caller in mine[5:])):
            assert answered(door, who, f"/v1/nodes/{who}/orders", caller)[1].startswith("http/1.1 200")
            caller.close()
    finally:
        door.close()


def test_one_that_finds_the_others_busy_is_answered_and_ends(tmp_path: Path) -> None:
    door = Door(tmp_path, None, AccessLimits(connections_per_node=1))
    try:
        busy = socket.create_connection(("127.0.0.1", door.port), timeout=60)
        head = f"Host: x\r\nAuthorization: Bearer {door.inside.token['n1']}\r\n\r\n"
        busy.sendall(f"GET /v1/nodes/n1/orders?wait_s=60 HTTP/1.1\r\n{head}".encode())
        deadline = time.monotonic() + 60
        while not len(door.server.listener.members):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for _ in range(2):
            late, answer = answered(door, "n1", "/v1/nodes/n1/orders")
            assert answer.startswith("http/1.1 200")
            assert "connection: close" in answer
            assert ended(late)
        assert len(door.server.listener.members) == 1
        busy.close()
    finally:
        door.close()


def test_asking_too_often_earns_nobody_a_connection(tmp_path: Path) -> None:
    door = Door(tmp_path, None, AccessLimits(node_per_s=0.001, node_burst=1))
    try:
        first, _ = answered(door, "n1", "/v1/nodes/n1/orders")
        for _ in range(3):
            caller, answer = answered(door, "n1", "/v1/nodes/n1/orders")
            assert answer.startswith("http/1.1 429")
            assert ended(caller)
        assert len(door.server.listener.members) == 1
        first.close()
    finally:
        door.close()
