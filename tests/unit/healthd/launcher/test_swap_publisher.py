"""The launcher hands its swaps to the node's healthd, and never waits for it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from healthd.daemon_status import Status
from healthd.http_server.status_server import PostEndpoints, StatusServer
from healthd.launcher.launch_journal import LaunchJournal
from healthd.launcher.process_groups import swap_publisher
from healthd.launcher.process_groups.swap_publisher import SwapPublisher, find_own_socket
from healthd.preflight_reports.report_endpoint import PreflightEndpoint
from healthd.swap_reports.swap_endpoint import Answer, Caller, SwapEndpoint
from healthd.trainer.beacons.job_owners import JobClaimants
from vocabulary.clock import ManualClock, SystemClock
from vocabulary.messages.evidence_bundle import EvidenceBundle


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


class Counted(SwapEndpoint):
    """An endpoint that counts what it is sent."""

    posts = 0

    def answer(self, body: bytes, caller: Caller) -> Answer:
        answer = super().answer(body, caller)
        self.posts += 1
        return answer


class Daemon:
    """A healthd as far as its socket. The user runs job `j`."""

    def __init__(self, path: Path) -> None:
        self.swaps = Counted(lambda: {"j": JobClaimants((os.geteuid(),))}, SystemClock(), proc="/nonexistent")
        self._server = StatusServer(
            ("127.0.0.1", 0), path, lambda: Status(node="n1", boot_id="b", at=5.0), lambda _: ("text/plain", b""),
            ManualClock(), lambda: EvidenceBundle(version=1, node="n1", boot_id="b", taken_at=5.0, from_at=1.0),
            PostEndpoints(PreflightEndpoint(lambda _: True, accept_injected=False), self.swaps),
        )  # fmt: skip

    def outcomes(self) -> list[str]:
        return [swap.outcome for swap in self.swaps.current()]

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "s")
    yield daemon
    daemon.close()


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute is too long for a test."""
    for name in ("REPEAT_SECONDS", "PAUSE_SECONDS"):
        monkeypatch.setattr(swap_publisher, name, 0.5)


def journal(place: Path, job: str = "j") -> LaunchJournal:
    return LaunchJournal(place / "events", job, SystemClock())


def lose(journal: LaunchJournal) -> None:
    journal.write("rank_lost", "rank 1 is gone", attempt=1, generation=0, rank=1, node="n1")


def test_the_swaps_of_a_job_arrive(tmp_path: Path, daemon: Daemon) -> None:
    events = journal(tmp_path)
    with SwapPublisher(events, "j", str(tmp_path / "s")):
        lose(events)
        until(lambda: daemon.outcomes() == ["under way"], "the loss")
        events.write("swapped", "done", attempt=1, generation=1, step=3, lost=0, seconds=0.5, phases={"met": 0.5})
        until(lambda: daemon.outcomes() == ["swapped"], "the swap")
    lose(events)
    assert events.observer is None


def test_a_healthd_that_starts_anew_or_later_learns_them_again(tmp_path: Path) -> None:
    events = journal(tmp_path)
    with SwapPublisher(events, "j", str(tmp_path / "s")):
        lose(events)
        for _ in range(2):
            daemon = Daemon(tmp_path / "s")
            until(lambda daemon=daemon: daemon.outcomes() == ["under way"], "the loss")  # type: ignore[misc]  # bound
            daemon.close()


def test_a_launcher_after_a_requeue_tells_what_its_predecessor_wrote(tmp_path: Path, daemon: Daemon) -> None:
    lose(journal(tmp_path))
    events = journal(tmp_path)
    with SwapPublisher(events, "j", str(tmp_path / "s")):
        events.write("attempt_started", "again", attempt=2, nodes=["n1"], ranks_per_node=1)
        until(lambda: daemon.outcomes() == ["restarted"], "the loss before the requeue")


def test_a_socket_that_answers_nothing_delays_nobody(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen(1)
        events = journal(tmp_path)
        with SwapPublisher(events, "j", str(tmp_path / "s")):
            for _ in range(200):  # waiting for an answer each time would exceed this test's time limit
                lose(events)
    assert len(events.events()) == 200


@pytest.mark.parametrize(
    ("environ", "local", "path"),
    [
        ({}, True, "/run/n0/s"),
        ({"SLURMD_NODENAME": "n5"}, False, "/run/n5/s"),
        ({"SLURMD_NODENAME": "n5", "HEALTHD_NODE": "n6"}, True, "/run/n6/s"),
        ({}, False, f"/run/{socket.gethostname()}/s"),
    ],
)
def test_the_socket_is_this_nodes(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], path: str, *, local: bool
) -> None:
    for name in ("HEALTHD_NODE", "SLURMD_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert find_own_socket("/run/{node}/s", ["n0", "n1"], local=local) == path


def test_a_job_without_swaps_says_whose_it_is(tmp_path: Path, daemon: Daemon) -> None:
    with SwapPublisher(journal(tmp_path), "j", str(tmp_path / "s")):
        until(lambda: daemon.swaps._register.owner("j", time.monotonic()) == os.geteuid(), "the owner")
    assert daemon.outcomes() == []


def test_a_refusal_is_said_once(tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(swap_publisher.stderr_writer, "write_launcher_line", said.append)
    events = journal(tmp_path, "other")
    with SwapPublisher(events, "other", str(tmp_path / "s")):
        lose(events)
        until(lambda: daemon.swaps.posts > 2, "more than one refusal")
    refusals = [line for line in said if "will not show" in line]
    assert len(refusals) == 1
    assert "no rank of job other runs on this node" in refusals[0]
