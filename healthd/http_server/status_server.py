"""Answers local queries over TCP and a UNIX socket: verdict, findings, sources, metrics, evidence.

Read-only, except that over the UNIX socket root reports preflights that no order started, and launchers report the
replaced ranks of their own jobs. Evidence holds kernel lines and the pages of other users' trainers, so only root and
healthd's user may read it, over the socket.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

import msgspec

from healthd.daemon_status import Status
from healthd.exporter.metrics_page import Page
from healthd.http_server.check_names import CHECK_NAMES, matches_some
from healthd.http_server.http_message import Reply, Request, problem_reply
from healthd.http_server.http_responder import BACKLOG, ConnectionLimits, HttpPeer, HttpResponder
from healthd.preflight_reports.report_endpoint import BODY_BYTES_MAX, PreflightEndpoint, may_report_preflight
from healthd.swap_reports.swap_endpoint import Caller, SwapEndpoint
from vocabulary.clock import Clock
from vocabulary.messages.evidence_bundle import EvidenceBundle
from vocabulary.messages.swap_messages import SWAPS_BYTES_MAX, SWAPS_PATH
from vocabulary.messages.wire import encode_message

SOCKET_MODE = 0o666  # prologs and users may query; the right to report is checked on each request
PATTERNS_MAX = 50  # per request, as each pattern is compared with every finding

EVIDENCE = "/v1/evidence"
PAGES = ("/v1/verdict", "/v1/findings", "/v1/sources", EVIDENCE, "/metrics", "/livez")
TOLD = "/v1/preflight"
STUCK_S = 30.0  # no round should take longer; the verdict is unknown long before

Answer = tuple[int, str, bytes]


class PostEndpoints(NamedTuple):
    """What the server accepts."""

    preflight: PreflightEndpoint
    swaps: SwapEndpoint


class StatusServer:
    """Both listeners, served by one thread. `address` is the bound address.

    Raises:
        OSError: an address cannot be bound.
    """

    limits = ConnectionLimits()

    def __init__(
        self,
        listen: tuple[str, int],
        socket_path: Path,
        status: Callable[[], Status],
        metrics: Page,
        clock: Clock,
        evidence: Callable[[], EvidenceBundle],
        doors: PostEndpoints,
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._status = status
        self._evidence = evidence
        self._preflight, self._swaps = doors
        self._socket_path = socket_path
        with contextlib.ExitStack() as opened:
            by_tcp = opened.enter_context(_tcp_listener(listen))
            self.address = by_tcp.getsockname()[:2]
            by_socket = opened.enter_context(_unix_listener(socket_path))
            self._responder = HttpResponder([by_socket, by_tcp], self, self.limits)
            opened.pop_all()

    def body_bytes_max(self, request: Request, peer: HttpPeer) -> int:
        """Return the body size limit: a preflight report by an authorised user has a body, and a local user's swaps."""
        if request.method == "POST" and request.path == SWAPS_PATH:
            return SWAPS_BYTES_MAX if peer.uid is not None else 0
        wanted = request.method == "POST" and request.path == TOLD and may_report_preflight(peer.uid)
        return BODY_BYTES_MAX if wanted else 0

    def respond(self, request: Request, peer: HttpPeer, body: bytes | None) -> Reply | Callable[[], Reply]:
        """Return the answer. Evidence and preflight reports are slow, so a separate thread makes their answers."""
        if request.path == TOLD:
            return self._take_preflight(request, peer, body)
        if request.path == SWAPS_PATH:
            return self._take_swaps(request, peer, body)
        accept = request.headers.get("accept", "")
        if request.path not in PAGES:
            return Reply(*self.answer(request.target, accept, peer.uid))
        if request.method not in ("GET", "HEAD"):
            return _make_method_error(request, "GET, HEAD")
        if request.path == EVIDENCE and peer.trusted:
            return lambda: Reply(*self.answer(request.target, accept, peer.uid))
        return Reply(*self.answer(request.target, accept, peer.uid))

    def _take_preflight(self, request: Request, peer: HttpPeer, body: bytes | None) -> Reply | Callable[[], Reply]:
        if request.method != "POST":
            return _make_method_error(request, "POST")
        if not may_report_preflight(peer.uid):
            return Reply(*self._preflight.answer(b"", peer.uid))
        if body is None:
            return problem_reply(411, "the request has no body", "send the document, and its Content-Length")
        return lambda: Reply(*self._preflight.answer(body, peer.uid))

    def _take_swaps(self, request: Request, peer: HttpPeer, body: bytes | None) -> Reply:
        if request.method != "POST":
            return _make_method_error(request, "POST")
        if peer.uid is None:
            return problem_reply(403, "only local users may report swaps", "send them over healthd's UNIX socket")
        if body is None:
            return problem_reply(411, "the request has no body", "send the swaps, and their Content-Length")
        return Reply(*self._swaps.answer(body, Caller(peer.uid, peer.pid)))

    def answer(self, path: str, accept: str = "", uid: int | None = None) -> Answer:
        """Return status code, content type and body for a GET of `path`; `accept` is the request's Accept header.

        `uid` is the user of the calling process, known only over the socket.
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
        if path == EVIDENCE:
            return self._evidence_for(uid)
        if path == "/livez":
            return self._alive()
        return _make_problem_answer(404, f"no such page: {path}", f"there are {', '.join(PAGES)}")

    def _verdict(self, query: str) -> Answer:
        """Return the verdict over all findings, or those that repeatable `only` and `ignore` patterns select."""
        filters = parse_qs(query)
        only, ignore = filters.get("only", []), filters.get("ignore", [])
        if len(only) + len(ignore) > PATTERNS_MAX:
            return _make_problem_answer(
                400, f"more than {PATTERNS_MAX} patterns", "use * to match several checks with one pattern"
            )
        for pattern in (*only, *ignore):
            if not matches_some(pattern):
                return _make_problem_answer(400, f"no check matches {pattern!r}", f"there are {', '.join(CHECK_NAMES)}")
        return 200, "application/json", msgspec.json.encode(self._status().verdict(only, ignore))

    def _evidence_for(self, uid: int | None) -> Answer:
        if uid is not None and uid in (0, os.geteuid()):
            return 200, "application/json", encode_message(self._evidence())
        return _make_problem_answer(403, "only root may read evidence", "connect as root, over healthd's UNIX socket")

    def _alive(self) -> Answer:
        """Return whether the main loop runs, for liveness probes."""
        age_s = self._clock.monotonic() - self._status().monotonic
        if age_s <= STUCK_S:
            return 200, "text/plain", b"the main loop goes round\n"
        return 503, "text/plain", f"the main loop has not run for {age_s:.0f} s\n".encode()

    def close(self) -> None:
        """Stop listening."""
        self._responder.close()
        with contextlib.suppress(FileNotFoundError):
            self._socket_path.unlink()


def _tcp_listener(address: tuple[str, int]) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _unix_listener(path: Path) -> socket.socket:
    """Bind the socket, replacing one that an earlier process left."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(SOCKET_MODE)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _make_method_error(request: Request, allowed: str) -> Reply:
    words = f"{request.method} is not for {request.path}"
    return problem_reply(405, words, f"use {allowed}", (("Allow", allowed),))


def _make_problem_answer(code: int, error: str, todo: str) -> Answer:
    return problem_reply(code, error, todo)[:3]
