"""Somebody's webhook: writes down what it got and what it answered. It can be down, or answer 500."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any, ClassVar

from tests.chaos.world.journal import Journal

PORT = 15188
MOODS = ("well", "down", "failing")


class Receiver(http.server.ThreadingHTTPServer):
    """`mood` is one of `MOODS`."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, journal: Journal) -> None:
        handler = type("_Handler", (_Handler,), {"receiver": self})
        super().__init__(("127.0.0.1", PORT), handler)
        self.journal = journal
        self.mood = "well"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{PORT}/hook"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that was killed is what these runs are about."""


class _Handler(http.server.BaseHTTPRequestHandler):
    receiver: ClassVar[Receiver]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        mood = self.receiver.mood
        if mood == "down":
            self.close_connection = True
            return
        code = 500 if mood == "failing" else 204
        self.receiver.journal.write(
            "received", key=self.headers.get("idempotency-key", ""), answered=code, message=json.loads(body)
        )
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""
