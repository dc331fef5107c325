"""The node's side of the controller, against servers that misbehave."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from healthd.config import RemediatorConfig
from healthd.controller.controller_client import (
    BACKOFF_S_MIN,
    DENIED_S,
    RETRY_AFTER_S_MAX,
    ControllerClient,
    ControllerDenied,
    ControllerError,
    ControllerUnreachable,
    RequestRejected,
    RetryBackoff,
    enrol_node,
    jitter_delay,
)
from healthd.controller.http_client import ANSWER_BYTES_MAX, HttpClient
from healthd.daemon_status import Status
from healthd.orders.order_store import OrderStore
from healthd.reporting.report_uplink import ReportUplink
from healthd.reporting.telemetry_subscription import TelemetrySubscription
from healthd.storage.database_writer import DatabaseWriter
from healthd.storage.node_database import NodeDatabase
from healthd.storage.pending_changes import PendingChanges
from vocabulary.clock import ManualClock
from vocabulary.finding import Finding, Severity
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.telemetry_messages import TelemetryPart
from vocabulary.messages.wire import NewToken, Problem, Report, ReportReply, encode_message

Serve = Callable[..., RemediatorConfig]


def http(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


REPLY = http(encode_message(ReportReply(7, 1)))


def report() -> Report:
    return Report(version=1, node="n1", boot_id="b", agent="a", seq=1, sent_at=1.0, ttl_s=3.0, health=Health.HEALTHY)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A server: for each connection, what it answers to each request on it; None closes without a word."""
    (tmp_path / "token").write_text("secret\n")
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def start(*connections: Sequence[bytes | None]) -> RemediatorConfig:
        def run() -> None:
            for answers in connections:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    for answer in answers:
                        if answer is None or not read_request(connection):
                            break
                        connection.sendall(answer)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/base/"
        return RemediatorConfig(url=url, token_file=tmp_path / "token")

    yield start
    for thread in threads:
        thread.join(30)
    listener.close()


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    sizes = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
    while sizes and len(body) < sizes[0]:
        body += connection.recv(65536)
    assert b"Authorization: Bearer secret" in head
    assert b" /base/v1/nodes/n1/" in head
    return head + b"\r\n\r\n" + body


def test_one_connection_serves_many_calls(serve: Serve) -> None:
    centre = ControllerClient(serve([REPLY, REPLY, http(b'{"orders": []}')]), "n1")
    assert centre.report(report()).acked_seq == 7
    assert centre.report(report()).acked_seq == 7
    assert centre.orders([], 0.0).orders == ()
    centre.close()


def test_a_kept_connection_that_was_closed_is_opened_anew(serve: Serve) -> None:
    centre = ControllerClient(serve([REPLY], [REPLY], [REPLY]), "n1")
    assert [centre.report(report()).acked_seq for _ in range(3)] == [7, 7, 7]
    centre.close()


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (b"nonsense\r\n\r\n", ControllerUnreachable, "nonsense"),
        (http(b"{}"), ControllerUnreachable, "check that this is a gpu-healthd controller"),
        (http(b"x" * 900, "500 Oops"), ControllerUnreachable, "500: xxx"),
        (
            http(encode_message(Problem(error="no such token", todo="issue one")), "401 Unauthorized"),
            ControllerDenied,
            "issue one",
        ),
        (http(b"", "403 Forbidden"), ControllerDenied, "403"),
        (http(encode_message(Problem(error="bad field")), "400 Bad Request"), RequestRejected, "bad field"),
        (http(b"", "408 Timeout"), ControllerUnreachable, "408"),
        (http(b"", "425 Too Early"), ControllerUnreachable, "425"),
        (http(b"", "429 Too Many"), ControllerUnreachable, "429"),
        (http(b"", "302 Found", "Location: http://elsewhere/\r\n"), RequestRejected, "302"),
        (
            f"HTTP/1.1 200 OK\r\nContent-Length: {ANSWER_BYTES_MAX + 9}\r\n\r\n".encode() + b"x",
            ControllerUnreachable,
            "Incomplete",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\nshort", ControllerUnreachable, "Incomplete"),
    ],
)
def test_whatever_comes_is_told_by_what_helps(
    serve: Serve, answer: bytes, kind: type[ControllerError], words: str
) -> None:
    centre = ControllerClient(serve([answer]), "n1")
    with pytest.raises(kind, match=words) as raised:
        centre.report(report())
    assert "secret" not in str(raised.value)
    centre.close()


def test_a_fresh_connection_that_is_closed_is_trouble_and_no_reason_to_ask_twice(serve: Serve) -> None:
    centre = ControllerClient(serve([None], [REPLY]), "n1")
    with pytest.raises(ControllerUnreachable):
        centre.report(report())
    assert centre.report(report()).acked_seq == 7
    centre.close()


def test_nobody_there_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    centre = ControllerClient(RemediatorConfig(url="http://127.0.0.1:1", token_file=tmp_path / "token"), "n1")
    with pytest.raises(ControllerUnreachable, match=r"127\.0\.0\.1:1/v1/nodes/n1/report: .*refused"):
        centre.report(report())


def test_an_answer_without_end_is_not_read_to_its_end(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("healthd.controller.http_client.ANSWER_BYTES_MAX", 1 << 20)
    centre = ControllerClient(serve([b"HTTP/1.1 200 OK\r\n\r\n" + bytes((1 << 20) + 1)]), "n1")
    with pytest.raises(ControllerUnreachable, match="more than 1 MiB"):
        centre.report(report())
    centre.close()


def test_a_refusal_names_the_finding_that_is_not_wanted(serve: Serve) -> None:
    centre = ControllerClient(serve([http(encode_message(Problem(error="too long", finding="f7")), "422 No")]), "n1")
    with pytest.raises(RequestRejected) as raised:
        centre.report(report())
    assert raised.value.finding == "f7"
    centre.close()


def test_a_centre_cannot_ask_for_silence(serve: Serve) -> None:
    centre = ControllerClient(serve([http(b"", "503 Busy", "Retry-After: 99999999\r\n")]), "n1")
    with pytest.raises(ControllerUnreachable) as raised:
        centre.report(report())
    assert raised.value.retry_after_s == RETRY_AFTER_S_MAX
    centre.close()


def test_a_centre_that_names_a_time_is_asked_again_no_sooner(serve: Serve) -> None:
    centre = ControllerClient(serve([http(b"", "503 Busy", "Retry-After: 17\r\n")]), "n1")
    with pytest.raises(ControllerUnreachable) as raised:
        centre.report(report())
    assert 17 < RetryBackoff().after(raised.value) <= 17 + BACKOFF_S_MIN
    assert RetryBackoff().after(ControllerDenied("no")) == DENIED_S
    centre.close()


def test_a_node_makes_its_own_token_and_sends_the_digest(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("join\n")
    token, asked = tmp_path / "token", b""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve_one() -> None:
            nonlocal asked
            with listener.accept()[0] as connection:
                while not asked.endswith(b"}"):
                    asked += connection.recv(65536)
                connection.sendall(http(encode_message(NewToken(""))))

        thread = threading.Thread(target=serve_one, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        client = HttpClient(url)
        enrol_node(client, url, "n1", tmp_path / "secret", token)
        thread.join(60)
        client.close()
    assert b"Authorization: Bearer join" in asked
    assert hashlib.sha256(token.read_text().strip().encode()).hexdigest().encode() in asked
    assert token.stat().st_mode & 0o777 == 0o600


# -- the uplink --------------------------------------------------------------------------------------------------------


class PickyCentre:
    """Takes every report but those with a change it does not want; or none at all."""

    def __init__(self, unwanted: set[str], *, nothing_wanted: bool = False) -> None:
        self._unwanted = unwanted
        self._nothing_wanted = nothing_wanted
        self.taken: list[str] = []

    def report(self, report: Report) -> ReportReply:
        ids = [change.finding.id for change in report.changes]
        if self._nothing_wanted or self._unwanted & set(ids):
            raise RequestRejected("422")
        self.taken += ids
        return ReportReply(report.changes[-1].seq if report.changes else 0, 1)


def finding(number: int) -> Finding:
    return Finding(
        id=f"f{number}",
        node="n1",
        check="xid",
        code="79",
        component=Component(ComponentKind.HOST),
        severity=Severity.FATAL,
        summary="…",
        first_seen=1.0,
        last_seen=1.0,
        origin=str(number),
    )


@pytest.fixture
def uplink(tmp_path: Path) -> Iterator[tuple[ReportUplink, PendingChanges]]:
    database = NodeDatabase(tmp_path / "db", 1.0)
    database.commit([finding(number) for number in range(20)])
    config = RemediatorConfig(url="http://x", token_file=tmp_path / "token")
    clock = ManualClock()
    committer = DatabaseWriter(database, clock)
    waiting = PendingChanges(committer)
    status = Status(node="n1", boot_id="b", at=1.0, newest_change=waiting.newest)
    yield (
        ReportUplink(
            config=config,
            agent="a",
            waiting=waiting,
            orders=OrderStore(committer, "n1"),
            status=lambda: status,
            clock=clock,
            watched=TelemetrySubscription(lambda back_s: TelemetryPart(back_s, ()), clock),
        ),
        waiting,
    )
    committer.close(30)


def test_a_change_that_is_not_wanted_blocks_no_other(uplink: tuple[ReportUplink, PendingChanges]) -> None:
    sender, waiting = uplink
    centre = PickyCentre({"f3", "f11"})
    sender.send(centre)  # type: ignore[arg-type]  # what a report needs of a controller
    assert centre.taken == [f"f{number}" for number in range(20) if number not in (3, 11)]
    assert (waiting.count(), waiting.rejected) == (0, 2)


def test_a_centre_that_wants_no_report_at_all_costs_no_change(uplink: tuple[ReportUplink, PendingChanges]) -> None:
    sender, waiting = uplink
    with pytest.raises(RequestRejected):
        sender.send(PickyCentre(set(), nothing_wanted=True))  # type: ignore[arg-type]  # same
    assert (waiting.count(), waiting.rejected) == (20, 0)


def test_who_may_have_come_with_a_whole_fleet_goes_apart_at_once_and_keeps_its_time_then() -> None:
    first, later = ([jitter_delay(10.0, together=together) for _ in range(1000)] for together in (True, False))
    assert 0 <= min(first) < 2
    assert 8 < max(first) <= 10
    assert 9 <= min(later) < max(later) <= 11
