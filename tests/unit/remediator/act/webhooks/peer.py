"""A receiver of webhooks that behaves as it is told: statuses, delays, redirects, drips, floods."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from remediator.model.delivery import Delivery, NotificationMessage, NotificationPhase
from remediator.notifications.follow_up_messages import NotificationContext
from vocabulary.finding import Severity

AT = 1_790_000_000.0


def message(number: int = 1, **changes: Any) -> NotificationMessage:
    made = NotificationMessage(
        id=f"inc-{number}.d1.s0.0.alert.n{number}",
        kind="alert",
        cluster="c",
        node=f"n{number}",
        incident=f"inc-{number}",
        title="xid/79 on gpu 3",
        rule="gpu-lost",
        text="a GPU fell off the bus",
        injected=False,
        severity=Severity.FATAL,
        at=AT,
        page=True,
        link=f"https://healthd.example/incidents/inc-{number}",
        labels={"rack": "r1"},
    )
    return msgspec.structs.replace(made, **changes)


def delivery(number: int = 1, **changes: Any) -> Delivery:
    said = message(number)
    made = Delivery(id=f"{said.id}@r", receiver="r", message=said, created_at=AT, thread=said.incident)
    return msgspec.structs.replace(made, **changes)


def standing(open_ones: set[str], taken_up: set[str] | None = None) -> NotificationContext:
    return NotificationContext(
        epoch=lambda: 1,
        is_open=lambda incident: incident in open_ones,
        is_taken_up=lambda incident: incident in (taken_up or set()),
        leads=lambda: True,
    )


def resolved(item: Delivery) -> Delivery:
    return msgspec.structs.replace(item, phase=NotificationPhase.RESOLVE)


def until(question: Callable[[], Any], why: str = "it never happened") -> Any:
    """The first true answer, waited for with patience."""
    deadline = time.monotonic() + 60
    while not (found := question()):
        assert time.monotonic() < deadline, why
        time.sleep(0.01)
    return found


class Peer(ThreadingHTTPServer):
    """Notes what it gets. `status`, `headers` and `act` say how it answers; `statuses` come first, one a request."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.got: list[tuple[str, Mapping[str, str], bytes]] = []
        self.status = 200
        self.statuses: list[int] = []
        self.headers: dict[str, str] = {}
        self.act: Callable[[socket.socket], None] | None = None  # in place of an answer
        self.scheme = "https" if context else "http"
        super().__init__(("127.0.0.1", 0), _Handler)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}/secret-path"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that is cut off is what some tests are about."""

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        peer = self.server
        assert isinstance(peer, Peer)
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        peer.got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        if peer.act is not None:
            peer.act(self.connection)
            return
        self.send_response(peer.statuses.pop(0) if peer.statuses else peer.status)
        for name, value in peer.headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass
