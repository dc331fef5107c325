from __future__ import annotations

import http.client
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from healthd.daemon_status import Status
from healthd.http_server.status_server import PAGES, STUCK_S, PostEndpoints, StatusServer
from healthd.preflight_reports.report_endpoint import PreflightEndpoint
from healthd.samples.source import SourceReading, SourceState
from healthd.swap_reports.swap_endpoint import SwapEndpoint
from healthd.trainer.beacons.job_owners import JobClaimants
from vocabulary.clock import ManualClock
from vocabulary.finding import Finding, Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.evidence_bundle import EvidenceBundle
from vocabulary.messages.swap_messages import SWAPS_BYTES_MAX, SWAPS_PATH

BUNDLE = EvidenceBundle(version=1, node="n1", boot_id="b", taken_at=5.0, from_at=1.0)
SOMEBODY = 65534


def finding(check: str, code: str, severity: Severity) -> Finding:
    return Finding(
        id=f"{check}{code}",
        node="n1",
        check=check,
        code=code,
        component=Component(ComponentKind.HOST),
        severity=severity,
        summary="…",
        first_seen=1.0,
        last_seen=1.0,
        origin="b:1",
    )


STATUS = Status(
    node="n1",
    boot_id="b",
    at=5.0,
    findings=(finding("xid", "79", Severity.FATAL), finding("disks", "full", Severity.WARNING)),
    sources={
        "dcgm": SourceReading(source="dcgm", state=SourceState.ABSENT, at=3.0, reason="no dcgmi", sample=object())
    },
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def doors(clock: ManualClock) -> PostEndpoints:
    swaps = SwapEndpoint(lambda: {"j": JobClaimants((os.geteuid(),))}, clock, proc="/nonexistent")
    return PostEndpoints(PreflightEndpoint(lambda _: True, accept_injected=False), swaps)


@pytest.fixture
def answer(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., tuple[int, Any]]]:
    """A GET, answered from memory; `uid` is who asks by the socket, None asks over TCP."""
    door = doors(clock)
    server = StatusServer(
        ("127.0.0.1", 0), tmp_path / "s", lambda: STATUS, lambda _: ("text/plain", b"{}"), clock, lambda: BUNDLE, door
    )

    def get(path: str, uid: int | None = os.geteuid()) -> tuple[int, Any]:
        code, kind, body = server.answer(path, uid=uid)
        return code, json.loads(body) if kind == "application/json" else body.decode()

    yield get
    server.close()


@pytest.mark.parametrize(
    ("query", "health"),
    [
        ("", "unhealthy"),
        ("?ignore=xid", "degraded"),
        ("?ignore=xid/31", "unhealthy"),
        ("?ignore=xid/7*&ignore=disks/full", "healthy"),
        ("?only=disks", "degraded"),
        ("?only=*/79", "unhealthy"),
        ("?only=nvlink", "healthy"),
        ("?only=disks&ignore=disks/full", "healthy"),
    ],
)
def test_the_verdict_over_some_findings_only(answer: Callable[[str], tuple[int, Any]], query: str, health: str) -> None:
    code, verdict = answer(f"/v1/verdict{query}")
    assert (code, verdict["health"]) == (200, health)


@pytest.mark.parametrize("query", ["?ignore=xids", "?only=", "?only=nvlnk/*"])
def test_a_filter_that_can_match_nothing_is_a_mistake(answer: Callable[[str], tuple[int, Any]], query: str) -> None:
    code, said = answer(f"/v1/verdict{query}")
    if query == "?only=":
        assert code == 200, "an empty filter is none"
    else:
        assert code == 400
        assert "no check matches" in said["error"]
        assert "nvlink" in said["todo"]


def test_every_page_is_there_and_no_other(answer: Callable[[str], tuple[int, Any]]) -> None:
    assert {page: answer(page)[0] for page in PAGES} == dict.fromkeys(PAGES, 200)
    assert answer("/v1/nothing")[0] == 404


def test_evidence_is_for_root_and_for_our_own_user(answer: Callable[..., tuple[int, Any]]) -> None:
    for uid, wanted in ((0, 200), (os.geteuid(), 200), (SOMEBODY, 403), (None, 403)):
        assert answer("/v1/evidence", uid)[0] == wanted
    assert answer("/v1/evidence")[1]["node"] == "n1"
    assert "as root" in answer("/v1/evidence", None)[1]["todo"]


def test_sources_are_told_without_their_samples(answer: Callable[[str], tuple[int, Any]]) -> None:
    assert answer("/v1/sources")[1]["sources"][0] == {
        "source": "dcgm",
        "state": "absent",
        "at": 3.0,
        "reason": "no dcgmi",
        "seconds": 0.0,
        "sample": None,
        "injected": False,
    }


def test_a_main_loop_that_stands_still_is_not_alive(
    answer: Callable[[str], tuple[int, Any]], clock: ManualClock
) -> None:
    assert answer("/livez")[0] == 200
    clock.advance(STUCK_S + 1)
    code, text = answer("/livez")
    assert (code, "has not run" in text) == (503, True)


def test_who_hangs_up_before_the_answer_leaves_no_traceback(
    tmp_path: Path, clock: ManualClock, capfd: pytest.CaptureFixture[str]
) -> None:
    gone, looked = threading.Event(), threading.Event()

    def status() -> Status:
        looked.set()
        assert gone.wait(60)
        return STATUS

    door = doors(clock)
    page = ("text/plain", b"{}")
    server = StatusServer(("127.0.0.1", 0), tmp_path / "s", status, lambda _: page, clock, lambda: BUNDLE, door)
    before = set(threading.enumerate())
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(tmp_path / "s"))
        caller.sendall(b"GET /v1/verdict HTTP/1.0\r\n\r\n")
        assert looked.wait(60)
        answering = set(threading.enumerate()) - before
    gone.set()
    server.close()
    assert not answering, "no thread for one who asks"
    assert capfd.readouterr().err == ""


SWAPS = b'{"job":"j","swaps":[{"job":"j","attempt":1,"at":5,"outcome":"swapped"}]}'


@pytest.mark.parametrize(
    ("method", "body", "by_tcp", "status"),
    [
        ("POST", SWAPS, False, 200),
        ("POST", SWAPS.replace(b'"j"', b'"other"'), False, 403),
        ("POST", SWAPS, True, 403),
        ("POST", b"x" * (SWAPS_BYTES_MAX + 1), False, 413),
        ("POST", None, False, 411),
        ("GET", None, False, 405),
    ],
)
def test_a_launcher_posts_its_swaps_over_the_socket(
    tmp_path: Path, clock: ManualClock, method: str, body: bytes | None, *, by_tcp: bool, status: int
) -> None:
    posts = doors(clock)
    server = StatusServer(
        ("127.0.0.1", 0), tmp_path / "s", lambda: STATUS, lambda _: ("text/plain", b""), clock, lambda: BUNDLE, posts
    )
    try:
        caller = http.client.HTTPConnection(*server.address, timeout=60)
        if not by_tcp:
            caller.sock = socket.socket(socket.AF_UNIX)
            caller.sock.connect(str(tmp_path / "s"))
        if body is None:
            caller.putrequest(method, SWAPS_PATH)
            caller.endheaders()
        else:
            caller.request(method, SWAPS_PATH, body)
        assert caller.getresponse().status == status
        caller.close()
    finally:
        server.close()
    assert [swap.job for swap in posts.swaps.current()] == ["j"] * (status == 200)
