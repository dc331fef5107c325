"""A controller as small as a test needs it: what it answers where, and what it heard."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import msgspec

from vocabulary.messages.wire import Problem


class SmallCentre:
    """Answers `answers[path]` to whoever asks; 404 elsewhere, 204 to what is sent where nothing is said.

    Once `leads_to` is a URL, everybody who asks is sent there.
    """

    def __init__(self) -> None:
        self.answers: dict[str, msgspec.Struct] = {}
        self.heard: list[tuple[str, object]] = []
        self.asked: list[str] = []
        self.leads_to = ""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"centre": self}))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    centre: SmallCentre

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.centre.asked.append(self.path)
        if self.centre.leads_to:
            self.send_response(302)
            self.send_header("Location", f"{self.centre.leads_to}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        answer = self.centre.answers.get(path)
        self._say(404, Problem(f"nothing at {path}")) if answer is None else self._say(200, answer)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.centre.heard.append((self.path, msgspec.json.decode(body) if body else None))
        self._say(200, self.centre.answers.get(f"POST {self.path}"))

    def _say(self, status: int, message: msgspec.Struct | None) -> None:
        body = b"" if message is None else msgspec.json.encode(message)
        self.send_response(status if message is not None else 204)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Be quiet."""
