"""Answers local questions over TCP and a UNIX socket: verdict, findings, sources, metrics, evidence. Read-only, but for one page.

What a preflight found that nobody ordered is told here, by root and by the socket alone.
Evidence holds kernel lines and the pages of other users' trainers: it is for root and for our own user, by the socket.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import msgspec

from healthd.check_names import CHECK_NAMES, matches_some
from healthd.exporter.page import Page
from healthd.preflight_door import BODY_BYTES_MAX, PreflightDoor, may_tell
from healthd.status import Status
from vocabulary.clock import Clock
from vocabulary.evidence import EvidenceBundle
from vocabulary.wire import Problem, encode

REQUEST_TIMEOUT_S = 5.0
LOOK_UP_S = 3600.0  # the library's threads wake to look whether to stop; ours end with the process
SOCKET_MODE = 0o666  # prologs and users may ask; who may tell is looked at anew with each word

PAGES = ("/v1/verdict", "/v1/findings", "/v1/sources", "/v1/evidence", "/metrics", "/livez")
TOLD = "/v1/preflight"
STUCK_S = 30.0  # no round should take longer; the verdict is unknown long before

Answer = tuple[int, str, bytes]
_PEER = struct.Struct("3i")  # pid, uid, gid

_log = logging.getLogger("healthd.http")


class StatusServer:
    """Both doors, each with its thread. The address that was bound is `address`.

    Raises:
        OSError: an address cannot be bound.
    """

    def __init__(
        self,
        listen: tuple[str, int],
        socket_path: Path,
        status: Callable[[], Status],
        metrics: Page,
        clock: Clock,
        evidence: Callable[[], EvidenceBundle],
        door: PreflightDoor,
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._status = status
        self._evidence = evidence
        answers = {"answer_for": staticmethod(self.answer), "answer_told": staticmethod(door.answer)}
        handler = type("_Handler", (_Handler,), answers)
        self._servers: list[ThreadingHTTPServer] = [_server_class(listen[0])(listen, handler)]
        self.address = self._servers[0].server_address[:2]
        self._socket_path = socket_path
        with contextlib.suppress(FileNotFoundError):
            socket_path.unlink()
        self._servers.append(_UnixServer(str(socket_path), handler))  # type: ignore[arg-type]  # a path is its address
        socket_path.chmod(SOCKET_MODE)
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(LOOK_UP_S,), name="http", daemon=True).start()

    def answer(self, path: str, accept: str = "", uid: int | None = None) -> Answer:
        """Status code, content type and body for a GET of `path`; `accept` is the header of that name.

        `uid` is whose process asks, known of those who ask by the socket.
        """
        path, _, query = path.partition("?")
        if path == "/metrics":
            return 200, *self._metrics(accept)
        if path == "/v1/verdict":
            return self._verdict(query)
        if path == "/v1/findings":
            status = self._status()
            said = {"findings": status.findings, "unwritten": sorted(status.unwritten)}
            return 200, "application/json", msgspec.json.encode(said)
        if path == "/v1/sources":
            sources = [msgspec.structs.replace(reading, sample=None) for reading in self._status().sources.values()]
            return 200, "application/json", msgspec.json.encode({"sources": sources})
        if path == "/v1/evidence":
            return self._evidence_for(uid)
        if path == "/livez":
            return self._alive()
        problem = Problem(error=f"no such page: {path}", todo=f"there are {', '.join(PAGES)}")
        return 404, "application/json", msgspec.json.encode(problem)

    def _verdict(self, query: str) -> Answer:
        """Over all findings, or with `only` and `ignore`: patterns over ``check/code``, each as often as wanted."""
        filters = parse_qs(query)
        only, ignore = filters.get("only", []), filters.get("ignore", [])
        for pattern in (*only, *ignore):
            if not matches_some(pattern):
                problem = Problem(error=f"no check matches {pattern!r}", todo=f"there are {', '.join(CHECK_NAMES)}")
                return 400, "application/json", msgspec.json.encode(problem)
        return 200, "application/json", msgspec.json.encode(self._status().verdict(only, ignore))

    def _evidence_for(self, uid: int | None) -> Answer:
        if uid is not None and uid in (0, os.geteuid()):
            return 200, "application/json", encode(self._evidence())
        problem = Problem(error="evidence is not for everybody", todo="ask as root, by healthd's UNIX socket")
        return 403, "application/json", encode(problem)

    def _alive(self) -> Answer:
        """Whether the main loop goes round: the question of those who would restart us."""
        age_s = self._clock.monotonic() - self._status().monotonic
        if age_s <= STUCK_S:
            return 200, "text/plain", b"the main loop goes round\n"
        return 503, "text/plain", f"the main loop has not come round for {age_s:.0f} s\n".encode()

    def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.server_close()
        with contextlib.suppress(FileNotFoundError):
            self._socket_path.unlink()


class _Handler(BaseHTTPRequestHandler):
    server_version = "healthd"
    sys_version = ""
    timeout = REQUEST_TIMEOUT_S
    answer_for: Callable[[str, str, int | None], Answer]
    answer_told: Callable[[bytes, int | None], Answer]

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # who asked has gone; the library would write a traceback
            super().handle()

    def do_GET(self) -> None:
        self._reply(*self.answer_for(self.path, self.headers.get("Accept", ""), _peer(self.connection)))

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.path != TOLD or not length.isdecimal() or len(length) > 9 or int(length) > BODY_BYTES_MAX:
            problem = Problem(error=f"nothing can be posted to {self.path} like this", todo=f"a document, to {TOLD}")
            self._reply(404, "application/json", msgspec.json.encode(problem))
            return
        uid = _peer(self.connection)
        body = self.rfile.read(int(length)) if may_tell(uid) else b""
        self._reply(*self.answer_told(body, uid))

    def _reply(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return str(self.client_address)  # a UNIX peer has no host and port

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        _log.debug(format, *args)


def _peer(connection: socket.socket) -> int | None:
    """The user at the other end of a UNIX socket, as the kernel says; None over TCP."""
    if connection.family != socket.AF_UNIX:
        return None
    _, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(uid)


class _TcpServer(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        socket.socket.bind(self.socket, self.server_address)  # the library's own would look its name up in DNS
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


class _Tcp6Server(_TcpServer):
    address_family = socket.AF_INET6


class _UnixServer(ThreadingHTTPServer):
    address_family = socket.AF_UNIX
    daemon_threads = True
    allow_reuse_address = False

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "healthd", 0


def _server_class(host: str) -> type[ThreadingHTTPServer]:
    return _Tcp6Server if ":" in host else _TcpServer
