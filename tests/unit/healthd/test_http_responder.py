"""The local door over real sockets, with callers who drip, stall, flood, lie about lengths, and never read."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from healthd.http_server.http_responder import HttpPeer
from healthd.http_server.http_worker import LONG_ANSWERS_WAITING_MAX, Worker
from healthd.http_server.status_server import PATTERNS_MAX
from healthd.preflight_reports.report_endpoint import BODY_BYTES_MAX
from tests.unit.healthd.http_server_fixture import FOREVER, GET, Door, all_of, ask, statuses, until
from tests.unit.healthd.test_shortages import descriptors_left
from vocabulary.messages.evidence_bundle import EvidenceBundle

SHORT = FOREVER._replace(request_s=0.2, answer_s=0.2, drain_s=0.2)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (GET, 200),
        (b"GET /v1/verdict HTTP/1.0\r\n\r\n", 200),
        (b"GET /v1/nothing HTTP/1.0\r\n\r\n", 404),
        (b"POST /v1/verdict HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}", 405),
        (b"DELETE /metrics HTTP/1.0\r\n\r\n", 405),
        (b"GET /v1/preflight HTTP/1.0\r\n\r\n", 405),
        (b"POST /v1/preflight HTTP/1.0\r\n\r\n", 411),
        (b"POST /v1/preflight HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST /v1/preflight HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}", 400),
        (b"POST /v1/preflight HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1), 413),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.0\r\n\r\n", 431),
        (b"GET /v1/verdict?" + b"only=xid&" * (PATTERNS_MAX + 1) + b" HTTP/1.0\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/3.0\r\n\r\n", 505),
    ],
)
def test_every_mistake_has_its_status_and_says_what_to_do(
    make_door: Callable[..., Door], sent: bytes, status: int
) -> None:
    said = ask(make_door(FOREVER._replace(drain_s=0.2)).unix(), sent)
    assert statuses(said) == [status]
    if status != 200:
        assert json.loads(said.partition(b"\r\n\r\n")[2])["todo"]
    if status == 405:
        assert b"\r\nAllow: " in said


def test_all_processes_of_a_user_are_one_client() -> None:
    assert len({HttpPeer(1001, pid=1), HttpPeer(1001, pid=2), HttpPeer(1002, pid=2)}) == 2


def test_a_head_alone_and_the_wanted_format(make_door: Callable[..., Door]) -> None:
    door = make_door()
    head, _, body = ask(door.tcp(), b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    assert b"Content-Length: 4" in head
    assert body == b""
    whole = ask(door.tcp(), b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: openmetrics\r\n\r\n")
    assert whole.endswith(b"\r\n\r\npageopenmetrics")


def test_a_second_request_behind_the_first_is_never_answered(make_door: Callable[..., Door]) -> None:
    door = make_door(SHORT)
    assert statuses(ask(door.unix(), GET + GET)) == [200]
    hidden = b"POST /v1/preflight HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}" + GET
    assert statuses(ask(door.unix(), hidden)) == [400]
    refused = b"POST /v1/verdict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(GET) + GET
    assert statuses(ask(door.unix(), refused)) == [405]


def test_a_preflight_is_taken_from_root_with_its_whole_body(make_door: Callable[..., Door]) -> None:
    door = make_door()
    document = json.dumps({"version": 2, "level": "gate", "node": "n1", "complete": True, "verdict": "pass",
                           "reason": "x" * 5_000_000, "injected": [], "started_at": 1.0, "results": []})  # fmt: skip
    connection = http.client.HTTPConnection("localhost", timeout=60)
    connection.sock = door.unix()
    connection.request("POST", "/v1/preflight", document)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())) == (200, {"says": "preflight gate: pass"})
    assert door.told == ["gate"]
    with door.unix() as patient:
        patient.sendall(b"POST /v1/preflight HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert patient.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        patient.sendall(b"{}")
        assert statuses(all_of(patient)) == [400]


def test_who_may_not_tell_hears_so_although_a_large_body_is_under_way(make_door: Callable[..., Door]) -> None:
    size = 4 << 20
    sent = b"POST /v1/preflight HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)
    door = make_door()
    assert statuses(ask(door.tcp(), sent)) == [403]
    assert door.told == []


def test_who_drips_is_cut_off_and_told_why(make_door: Callable[..., Door]) -> None:
    door = make_door(SHORT)
    said = b""
    with door.tcp() as dripping, contextlib.suppress(ConnectionError):
        dripping.settimeout(0.01)
        dripping.sendall(b"GET /v1/verdict HTTP/1.1\r\nX: ")
        while True:
            with contextlib.suppress(TimeoutError):
                piece = dripping.recv(4096)
                said += piece
                if not piece:
                    break
            dripping.sendall(b"a")
    assert statuses(said) == [408]
    with door.tcp() as silent:
        assert all_of(silent) == b"", "who says nothing at all is cut without a word"
    until(lambda: door.open() == 0)


def test_who_drips_a_body_is_cut_off_too(make_door: Callable[..., Door]) -> None:
    door = make_door(SHORT)
    sent = b"POST /v1/preflight HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
    assert statuses(ask(door.unix(), sent)) == [408]


def test_who_does_not_take_the_answer_is_cut_off(make_door: Callable[..., Door]) -> None:
    door = make_door(SHORT)
    door.page = bytes(32 << 20)
    with door.tcp() as reader:
        reader.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: door.open() == 1)
        assert statuses(ask(door.unix())) == [200], "others are answered meanwhile"
        until(lambda: door.open() == 0)
        assert len(all_of(reader)) < len(door.page)


def test_evidence_that_takes_long_holds_up_nobody_and_is_made_once_at_a_time(make_door: Callable[..., Door]) -> None:
    door = make_door(FOREVER._replace(trusted=30))
    go, made, at_once = threading.Event(), door.evidence, []

    def slow() -> EvidenceBundle:
        at_once.append(sum(thread.name == "http-long" for thread in threading.enumerate()))
        assert go.wait(60)
        return made()

    door.evidence = slow
    wanted = b"GET /v1/evidence HTTP/1.1\r\nHost: x\r\n\r\n"
    with contextlib.ExitStack() as callers:
        first = callers.enter_context(door.unix())
        first.sendall(wanted)
        until(lambda: len(at_once) == 1)
        others = [callers.enter_context(door.unix()) for _ in range(LONG_ANSWERS_WAITING_MAX)]
        for caller in others:
            caller.sendall(wanted)
        until(lambda: len(door.server._responder._worker._jobs) == LONG_ANSWERS_WAITING_MAX)
        assert statuses(ask(door.unix(), wanted)) == [503]
        assert statuses(ask(door.unix())) == [200]
        assert statuses(ask(door.tcp(), wanted)) == [403]
        others[0].close()  # who goes away meanwhile harms nobody
        go.set()
        assert [statuses(all_of(caller)) for caller in (first, *others[1:])] == [[200]] * LONG_ANSWERS_WAITING_MAX
    assert set(at_once) == {1}
    until(lambda: all(thread.name != "http-long" for thread in threading.enumerate()))


@pytest.mark.parametrize(
    ("error", "logged"), [(OSError(errno.ECONNABORTED, "gone already"), False), (ValueError("ours"), True)]
)
def test_whatever_happens_as_one_comes_the_next_is_answered(
    make_door: Callable[..., Door], caplog: pytest.LogCaptureFixture, error: Exception, *, logged: bool
) -> None:
    door = make_door()
    accept, errors = door.server._responder._accept_one, [error]

    def accept_one(listener: socket.socket) -> tuple[socket.socket, HttpPeer]:
        if errors:
            raise errors.pop()
        return accept(listener)

    door.server._responder._accept_one = accept_one  # type: ignore[method-assign]  # fails once
    assert statuses(ask(door.unix())) == [200]
    assert ("internal error" in caplog.text) is logged
    assert not errors


def test_a_long_answer_for_which_there_is_no_thread_is_refused_and_not_made_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker, made, done = Worker(), [], threading.Event()

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        assert not worker.submit(lambda: made.append("refused"))
    assert worker.submit(lambda: made.append("taken"))
    assert worker.submit(done.set)
    assert done.wait(60)
    assert made == ["taken"]


def test_a_long_answer_with_a_mistake_is_one_500(make_door: Callable[..., Door]) -> None:
    door = make_door()
    door.evidence = lambda: 1 / 0  # type: ignore[assignment, return-value]  # the mistake
    assert statuses(ask(door.unix(), b"GET /v1/evidence HTTP/1.0\r\n\r\n")) == [500]
    assert statuses(ask(door.unix())) == [200]


REFUSED = b"POST /v1/preflight HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n"


def test_who_stays_with_the_rest_of_a_refused_request_is_cut_off(make_door: Callable[..., Door]) -> None:
    door = make_door(SHORT)
    with door.tcp() as caller:
        caller.sendall(REFUSED)
        assert statuses(all_of(caller)) == [403]
        until(lambda: door.open() == 0)


def test_who_sends_the_rest_of_a_refused_request_without_end_is_cut_off(
    make_door: Callable[..., Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("healthd.http_server.http_responder.DRAINED_BYTES_MAX", 1 << 20)
    door = make_door()
    with door.tcp() as caller:
        caller.sendall(REFUSED)
        assert statuses(all_of(caller)) == [403]
        with pytest.raises(ConnectionError):
            caller.sendall(bytes(64 << 20))
        until(lambda: door.open() == 0)


def test_a_page_with_a_mistake_is_one_500(make_door: Callable[..., Door], caplog: pytest.LogCaptureFixture) -> None:
    door = make_door()
    door.page = None  # type: ignore[assignment]  # the mistake
    assert statuses(ask(door.unix(), b"GET /metrics HTTP/1.0\r\n\r\n")) == [500]
    assert statuses(ask(door.unix())) == [200]
    assert "GET /metrics" in caplog.text


def test_without_descriptors_one_is_answered_and_the_others_wait(make_door: Callable[..., Door]) -> None:
    door = make_door()
    responder = door.server._responder
    callers = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    with descriptors_left(0):
        for caller in callers:
            caller.settimeout(60)
            caller.connect(str(door.path))
        until(lambda: responder._accept_at > 0 and not responder._accepting)
        assert door.open() == 1, "in the place that is kept for that; and nobody turns round and round for the others"
        callers[0].sendall(GET)
        assert statuses(all_of(callers[0])) == [200]
    for caller in callers[1:]:
        assert statuses(ask(caller)) == [200]
    callers[0].close()


def test_the_place_for_a_shortage_is_kept_again_although_its_caller_stays(make_door: Callable[..., Door]) -> None:
    door = make_door()
    responder = door.server._responder
    stays, asks = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    with stays, asks:
        with descriptors_left(0):
            stays.connect(str(door.path))
            until(lambda: door.open() == 1 and not responder._accepting)
        until(lambda: responder._spare is not None)
        with descriptors_left(0):
            asks.settimeout(60)
            asks.connect(str(door.path))
            assert statuses(ask(asks)) == [200]
        assert door.open() == 1, "the first is still there"


def test_nothing_is_left_open(make_door: Callable[..., Door], tmp_path: Path) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    door = Door(tmp_path, FOREVER)
    with door.unix() as one, door.tcp() as other:
        one.send(b"GET ")
        assert statuses(ask(door.tcp())) == [200]
        door.server.close()
        assert all_of(other) == b""
    assert set(Path("/proc/self/fd").iterdir()) == before
    assert not door.path.exists()
