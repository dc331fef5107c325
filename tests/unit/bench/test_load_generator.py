"""The load generator in C, against a small server: its reports are healthd's, and what is answered late counts from when it was due."""

from __future__ import annotations

import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from bench.fleet.load_generator import LoadError, LoadShape, run_load
from vocabulary.messages.heartbeat import Heartbeat, apply_heartbeat, decode_heartbeat, read_windows
from vocabulary.messages.wire import Report, decode_report

NODES, INTERVAL_S, JOIN_S = 5, 0.5, 0.6


class Server:
    """Answers each report after `delay_s`, with `status`."""

    def __init__(self, delay_s: float = 0.0, status: int = 200) -> None:
        self.reports: list[Report] = []
        self.heartbeats: list[tuple[str, Heartbeat]] = []
        self.knows_heartbeats = True
        self._delay_s, self._status = delay_s, status
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(60)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        ended = suppress(ConnectionResetError, BrokenPipeError)  # the generator does not wait for its last answers
        with connection, connection.makefile("rb") as stream, ended:
            while head := b"".join(iter(stream.readline, b"\r\n")) if stream.peek(1) else b"":
                length = re.search(rb"Content-Length: (\d+)", head)
                assert length is not None
                status, body = self._take(head, stream.read(int(length[1])))
                time.sleep(self._delay_s)
                connection.sendall(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))

    def _take(self, head: bytes, body: bytes) -> tuple[int, bytes]:
        if b"/heartbeat " in head:
            node = head.split(b"/")[3].decode()
            self.heartbeats.append((node, decode_heartbeat(body)))
            return (self._status if self.knows_heartbeats else 409), b"{}"
        self.reports.append(decode_report(body))
        return self._status, b'{"acked_seq":0,"base":%d}' % self.reports[-1].seq


@contextmanager
def running(delay_s: float = 0.0, status: int = 200) -> Iterator[Server]:
    with closing(Server(delay_s, status)) as server:
        yield server


pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def test_reports_are_those_of_a_node_and_go_on(tmp_path: Path) -> None:
    with running() as server:
        found = run_load(tmp_path, server.port, LoadShape(NODES, INTERVAL_S, 2.2, JOIN_S, heartbeats=False))
    assert found.answered >= NODES
    assert (found.refused, found.broken) == (0, 0)
    for name in {report.node for report in server.reports}:
        own = [report for report in server.reports if report.node == name]
        assert [report.seq for report in own] == list(range(1, len(own) + 1))
        assert abs(own[-1].sent_at - time.time()) < 60
        assert all(rank.windows[0].first < rank.windows[-1].first <= rank.step for rank in own[-1].ranks)
    assert len({report.node for report in server.reports}) == NODES


def test_after_its_first_report_a_node_sends_heartbeats(tmp_path: Path) -> None:
    with running() as server:
        found = run_load(tmp_path, server.port, LoadShape(NODES, INTERVAL_S, 2.2, JOIN_S))
    assert found.answered >= NODES
    assert (found.refused, found.broken, found.whole) == (0, 0, 0)
    assert len(server.reports) == NODES
    for report in server.reports:
        own = [beat for node, beat in server.heartbeats if node == report.node]
        assert [(beat.base, beat.seq) for beat in own] == [(report.seq, report.seq + n + 1) for n in range(len(own))]
        assert abs(own[-1].sent_at - time.time()) < 60
        ranks = apply_heartbeat(report.ranks, own[-1])
        assert all(rank.at == own[-1].sent_at for rank in ranks)
        assert all(w[0].first < w[-1].first <= rank.step for rank, w in zip(ranks, read_windows(own[-1]), strict=True))


def test_a_node_reports_again_where_its_report_is_unknown(tmp_path: Path) -> None:
    with running() as server:
        server.knows_heartbeats = False
        found = run_load(tmp_path, server.port, LoadShape(NODES, INTERVAL_S, 2.2, JOIN_S))
    assert (found.refused, found.broken) == (0, 0)
    assert len(server.reports) > len(server.heartbeats) > 0


def test_what_waits_for_a_slow_server_counts_from_when_it_was_due(tmp_path: Path) -> None:
    with running(delay_s=2 * INTERVAL_S) as server:
        found = run_load(tmp_path, server.port, LoadShape(NODES, INTERVAL_S, 4.0, JOIN_S))
    assert found.latency_ms[2] > 1e3 * 3 * INTERVAL_S  # a report waits behind those before it
    assert found.waiting > 0


def test_refused_reports_are_counted(tmp_path: Path) -> None:
    with running(status=503) as server:
        found = run_load(tmp_path, server.port, LoadShape(NODES, INTERVAL_S, 2.2, JOIN_S))
    assert found.refused == found.answered > 0


def test_without_a_compiler_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(LoadError, match="install one"):
        run_load(tmp_path, 1, LoadShape(NODES, INTERVAL_S, 1.0, 0.0))
