"""The uplink and its client against a controller that is silent while a fatal finding waits."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from healthd.config import RemediatorConfig
from healthd.controller.http_client import HttpClient, HttpError
from healthd.daemon_status import Status
from healthd.orders.order_store import OrderStore
from healthd.reporting.report_uplink import FIRST_BYTE_S, ReportUplink
from healthd.reporting.telemetry_subscription import TelemetrySubscription
from healthd.storage.database_writer import DatabaseWriter
from healthd.storage.node_database import NodeDatabase
from healthd.storage.pending_changes import PendingChanges
from tests.unit.healthd.test_controller_client import finding, http, read_request
from vocabulary.clock import ManualClock
from vocabulary.messages.telemetry_messages import TelemetryPart
from vocabulary.messages.wire import Report, ReportReply, decode_message, encode_message


class SilentOnce:
    """A real server: it reads the first reports and never answers them, each on its own connection, and takes the others."""

    def __init__(self, silent: int, *, first_takes_one: bool = False) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.silences = [threading.Event() for _ in range(silent)]
        self.taken: list[Report] = []
        self.answered = threading.Event()
        self.connections = 0
        self._first_takes_one = first_takes_one
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/base"

    def _run(self) -> None:
        with contextlib.ExitStack() as held:
            for silence in self.silences:
                connection = held.enter_context(self.listener.accept()[0])
                self.connections += 1
                if self._first_takes_one:
                    self._take(connection)
                assert read_request(connection)
                silence.set()
            connection = held.enter_context(self.listener.accept()[0])
            self.connections += 1
            while self._take(connection):
                self.answered.set()

    def _take(self, connection: socket.socket) -> bool:
        head, _, body = read_request(connection).partition(b"\r\n\r\n")
        if not head:
            return False
        self.taken.append(decode_message(body, Report))
        last = self.taken[-1].changes[-1].seq if self.taken[-1].changes else 0
        connection.sendall(http(encode_message(ReportReply(last, 1))))
        return True

    def close(self) -> None:
        self._thread.join(60)
        self.listener.close()


class Reporting:
    """An uplink at work; `status` is the node's, and may be replaced."""

    def __init__(self, place: Path, url: str) -> None:
        (place / "token").write_text("secret\n")
        self.database = NodeDatabase(place / "db", 1.0)
        self.status = Status(node="n1", boot_id="b", at=1.0)
        clock = ManualClock()
        committer = DatabaseWriter(self.database, clock)
        self._waiting = PendingChanges(committer)
        config = RemediatorConfig(url=url, token_file=place / "token", report_interval_s=600)
        self.uplink = ReportUplink(
            config=config,
            agent="a",
            waiting=self._waiting,
            orders=OrderStore(committer, "n1"),
            status=lambda: self.status,
            clock=clock,
            watched=TelemetrySubscription(lambda back_s: TelemetryPart(back_s, ()), clock),
        )
        self._thread = threading.Thread(target=self.uplink.run)
        self._thread.start()

    def fatal(self, number: int) -> None:
        """A fatal finding is durable here, and published."""
        self._waiting.add(self.database.commit([finding(number)]), self.database)
        findings = (*self.status.findings, finding(number))
        self.status = replace(self.status, findings=findings, newest_change=self._waiting.newest)
        self.uplink.wake()

    def close(self) -> None:
        self.uplink.stop()
        self._thread.join(60)
        self.database.close()


@pytest.mark.parametrize("kept", [False, True])
def test_a_silent_centre_is_left_for_a_fresh_connection_while_a_fatal_finding_waits(
    tmp_path: Path, *, kept: bool
) -> None:
    centre = SilentOnce(1, first_takes_one=kept)
    node = Reporting(tmp_path, centre.url)
    node.uplink._patience_s = 0.0
    if kept:
        until(lambda: bool(centre.taken))
        node.uplink.wake()  # a report without news hangs: nothing urgent in it
    assert centre.silences[0].wait(60)
    node.uplink.look_after_urgent()
    assert not centre.answered.is_set(), "nothing is urgent: the centre may take its time"
    node.fatal(1)  # while the request hangs
    until(lambda: bool(node.uplink.look_after_urgent() or centre.answered.is_set()))
    until(lambda: node.database.waiting() == 0)
    assert [each.id for each in centre.taken[-1].active] == ["f1"]
    assert centre.connections == 2
    until(lambda: node.uplink._patience_s == FIRST_BYTE_S)
    node.uplink.look_after_urgent()
    node.close()
    centre.close()


def test_a_centre_that_goes_on_being_silent_is_given_ever_more_time(tmp_path: Path) -> None:
    centre = SilentOnce(3)
    node = Reporting(tmp_path, centre.url)
    node.fatal(1)
    patience = []
    for silence in centre.silences:
        assert silence.wait(60)
        patience.append(node.uplink._patience_s)
        client = node.uplink._controller._client  # type: ignore[union-attr]  # it is there, and of that kind
        until(lambda client=client: client._awaiting is not None)  # type: ignore[misc]  # bound now, not later
        client._awaiting = (client._awaiting[0], -1e9)  # type: ignore[index]  # as if it had been silent for long
        node.uplink.look_after_urgent()
    assert patience == [FIRST_BYTE_S, 2 * FIRST_BYTE_S, 4 * FIRST_BYTE_S]
    until(lambda: bool(node.uplink.look_after_urgent() or node.database.waiting() == 0))
    assert {report.agent for report in centre.taken} == {"a"}
    node.close()
    centre.close()


def test_only_a_call_that_was_silent_for_so_long_is_cut() -> None:
    client = HttpClient("http://127.0.0.1:1")
    assert not client.cut_if_silent(0.0), "there is none"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        client._awaiting = (ours, time.monotonic())
        assert not client.cut_if_silent(600.0)
        client._awaiting = (ours, time.monotonic() - 601.0)
        assert client.cut_if_silent(600.0)
        assert theirs.recv(1) == b""


def test_a_kept_connection_on_which_an_answer_got_stuck_in_its_first_line_is_left_too() -> None:
    listener, stuck = socket.create_server(("127.0.0.1", 0)), threading.Event()
    client = HttpClient(f"http://127.0.0.1:{listener.getsockname()[1]}")

    def serve() -> None:
        with listener.accept()[0] as first:
            assert first.recv(4096)
            first.sendall(http(b"one"))
            assert first.recv(4096)
            first.sendall(b"HTTP/1.1 2")
            stuck.set()
            with listener.accept()[0] as second:
                assert second.recv(4096)
                second.sendall(http(b"two"))

    thread = threading.Thread(target=serve)
    thread.start()
    bodies = [client.request("GET", "/", b"", {}, 60).body]
    asking = threading.Thread(target=lambda: bodies.append(client.request("GET", "/", b"", {}, 60).body))
    asking.start()
    assert stuck.wait(60)
    until(lambda: client.cut_if_silent(0.0))
    for each in (asking, thread):
        each.join(60)
    client.close()
    listener.close()
    assert bodies == [b"one", b"two"]


def test_after_silence_the_next_address_of_the_name_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with socket.create_server(("127.0.0.2", port)) as speaking:
            found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", port)) for n in (1, 2)]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)  # a name with two addresses
            client = HttpClient(f"http://centre.test:{port}")
            with pytest.raises(HttpError, match="timed out"):
                client.request("GET", "/", b"", {}, 0.05)

            def answer() -> None:
                connection, _ = speaking.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(http(b"here"))

            thread = threading.Thread(target=answer)
            thread.start()
            assert client.request("GET", "/", b"", {}, 60).body == b"here"
            thread.join(60)
            client.close()


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)  # another thread is at work
