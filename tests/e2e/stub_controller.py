"""A controller small enough to see through: takes reports, hands out orders, remembers in which order it heard what."""

from __future__ import annotations

import http.server
import threading
import time
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote

import msgspec

from vocabulary.finding import Finding
from vocabulary.messages.job_hazard import JobHazard
from vocabulary.messages.wire import OrdersReply, Problem, Report, ReportReply, decode_message, encode_message
from vocabulary.order import Order, OrderUpdate

TOKEN = "a-token-for-tests"


class StubController:
    """Listens on a port of the system's choice, or on `port`."""

    def __init__(self, port: int = 0) -> None:
        self.heard: list[Report | OrderUpdate] = []
        self.orders: list[Order] = []
        self.evidence: list[tuple[str, bytes]] = []  # as it came, for each order
        self.may_answer_evidence = threading.Event()
        self.may_answer_evidence.set()
        self.evidence_begun = 0
        self.hazard_per_s = 1e-4  # of every job
        self.news = threading.Condition()
        handler = type("_Handler", (_Handler,), {"controller": self})
        self._server = _Server(("127.0.0.1", port), handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def configuration(self, place: Path, token: str = TOKEN) -> dict[str, object]:
        """The `remediator` section of a node's configuration."""
        path = place / "token"
        path.write_text(f"{token}\n")
        return {"url": f"http://127.0.0.1:{self.port}", "token_file": str(path), "report_interval_s": 0.5}

    def issue(self, order: Order) -> None:
        """Hand out an order until it is answered for good."""
        with self.news:
            self.orders.append(order)
            self.news.notify_all()

    @property
    def reports(self) -> list[Report]:
        """The reports so far."""
        return [message for message in self.heard if isinstance(message, Report)]

    @property
    def changes(self) -> dict[str, Finding]:
        """Findings as the changes so far left them, by id."""
        return {change.finding.id: change.finding for report in self.reports for change in report.changes}

    def answer(self, order: str) -> OrderUpdate | None:
        """The last word on an order."""
        words = [message for message in self.heard if isinstance(message, OrderUpdate) and message.id == order]
        return words[-1] if words else None

    def ended(self, order: str) -> OrderUpdate | None:
        """The final word on an order, once there is one."""
        answer = self.answer(order)
        return answer if answer is not None and answer.state.final else None

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A killed client is what these tests are about."""


class _Handler(http.server.BaseHTTPRequestHandler):
    controller: ClassVar[StubController]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if not self._may():
            return
        if self.path.startswith("/v1/hazard/"):
            job = unquote(self.path.split("/")[3])
            hazard = JobHazard(
                job=job, attempt=0, nodes=2, per_s=self.controller.hazard_per_s, at=time.time(), valid_s=900
            )
            self._reply(200, encode_message(hazard))
            return
        known = {part.partition("=")[2] for part in self.path.partition("?")[2].split("&") if part.startswith("known=")}
        with self.controller.news:
            self.controller.news.wait_for(lambda: any(o.id not in known for o in self.controller.orders), 0.5)
            orders = tuple(order for order in self.controller.orders if self.controller.ended(order.id) is None)
        self._reply(200, encode_message(OrdersReply(orders)))

    def do_POST(self) -> None:
        if "/evidence/" in self.path:
            self.controller.evidence_begun += 1
            self.controller.may_answer_evidence.wait()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self._may():
            return
        if self.path.endswith("/report"):
            report = decode_message(body, Report)
            self.controller.heard.append(report)
            acked = report.changes[-1].seq if report.changes else 0
            self._reply(200, encode_message(ReportReply(acked, 1)))
        elif "/evidence/" in self.path:
            if len(body) == int(self.headers["Content-Length"]):
                self.controller.evidence.append((unquote(self.path.rpartition("/")[2]), body))
            self._reply(204, b"")
        else:
            self.controller.heard.append(decode_message(body, OrderUpdate))
            self._reply(204, b"")

    def _may(self) -> bool:
        if self.headers["Authorization"] == f"Bearer {TOKEN}":
            return True
        problem = Problem(error="this token is not known", todo="issue a new one")
        self._reply(401, msgspec.json.encode(problem))
        return False

    def _reply(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
