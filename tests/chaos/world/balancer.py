"""One address for several centres: each new connection goes to the one that says it is ready, as a load balancer sends it."""

from __future__ import annotations

import contextlib
import http.client
import selectors
import socket
import socketserver
import threading
import time
from collections.abc import Sequence

ASK_S = 0.2
BYTES = 1 << 16


class Balancer(socketserver.ThreadingTCPServer):
    """Listens on `address`; `ports` are those of the centres on this machine."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], ports: Sequence[int]) -> None:
        super().__init__(address, _Relay)
        self._ports = tuple(ports)
        self.ready: int | None = None
        for target in (self.serve_forever, self._ask):
            threading.Thread(target=target, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that breaks is what these runs are about."""

    def _ask(self) -> None:
        while True:
            self.ready = next((port for port in self._ports if is_ready(port)), None)
            time.sleep(ASK_S)


class _Relay(socketserver.BaseRequestHandler):
    server: Balancer

    def handle(self) -> None:
        if self.server.ready is None:
            return
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.server.ready), 5) as behind:
            behind.settimeout(None)
            pass_on(self.request, behind)


def pass_on(one: socket.socket, other: socket.socket) -> None:
    """Bytes both ways until either side ends."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while True:
            for key, _ in selector.select():
                source, target = key.fileobj, key.data
                assert isinstance(source, socket.socket)
                data = source.recv(BYTES)
                if not data:
                    return
                target.sendall(data)


def is_ready(port: int) -> bool:
    """Whether the centre on this port says that it is the one to ask."""
    return _says(port) == 200


def is_up(port: int) -> bool:
    """Whether the centre on this port has come up, to lead or to stand by."""
    return _says(port) is not None


def _says(port: int) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
