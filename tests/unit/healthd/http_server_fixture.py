"""What tests of the local door share: a server whose answers a test decides, and callers."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path

from healthd.daemon_status import Status
from healthd.http_server.http_responder import ConnectionLimits
from healthd.http_server.status_server import PostEndpoints, StatusServer
from healthd.preflight_reports.report_endpoint import PreflightEndpoint
from healthd.swap_reports.swap_endpoint import SwapEndpoint
from vocabulary.clock import ManualClock
from vocabulary.messages.evidence_bundle import EvidenceBundle

GET = b"GET /v1/verdict HTTP/1.1\r\nHost: x\r\n\r\n"
FOREVER = ConnectionLimits(per_door=12, per_peer=4, trusted=6, request_s=600, answer_s=600, drain_s=600)


class Door:
    """A server whose answers a test decides."""

    def __init__(self, place: Path, limits: ConnectionLimits) -> None:
        self.path = place / "s"
        self.page = b"page"
        self.evidence: Callable[[], EvidenceBundle] = lambda: EvidenceBundle(
            version=1, node="n1", boot_id="b", taken_at=5.0, from_at=1.0
        )
        self.told: list[str] = []
        status = Status(node="n1", boot_id="b", at=5.0)
        tell = PreflightEndpoint(lambda sample: not self.told.append(sample.level), accept_injected=False)
        self.server = type("_Server", (StatusServer,), {"limits": limits})(
            ("127.0.0.1", 0),
            self.path,
            lambda: status,
            lambda accept: ("text/plain", self.page + accept.encode()),
            ManualClock(),
            lambda: self.evidence(),  # noqa: PLW0108 - a test may exchange it
            PostEndpoints(tell, SwapEndpoint(dict, ManualClock())),
        )

    def tcp(self) -> socket.socket:
        return socket.create_connection(self.server.address, timeout=60)

    def unix(self) -> socket.socket:
        caller = socket.socket(socket.AF_UNIX)
        caller.settimeout(60)
        caller.connect(str(self.path))
        return caller

    def open(self) -> int:
        return len(self.server._responder._connections)


def all_of(caller: socket.socket) -> bytes:
    said = b""
    with contextlib.suppress(ConnectionError):
        while piece := caller.recv(1 << 16):
            said += piece
    return said


def ask(caller: socket.socket, sent: bytes = GET) -> bytes:
    """Everything that comes back, until the server ends the connection."""
    with caller, contextlib.suppress(BrokenPipeError):
        caller.sendall(sent)
        return all_of(caller)
    return b""


def statuses(said: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", said)]


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)  # the server's thread is at work
