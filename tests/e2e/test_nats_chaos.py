"""NATS, ingest and leader die at random, the server stands still, its disk is full: every finding is there exactly once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from healthd_node import eventually
from nats_site import NatsSite, SmallNode, end, make_change

from healthd.controller.controller_client import ControllerError, ControllerUnreachable

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

NODES, CHANGES, AT_ONCE = 8, 40, 4
WITHIN_S = 600.0


class _Stored(msgspec.Struct):
    """How often a stored finding was seen."""

    count: int = 1


class Reporter(threading.Thread):
    """A node that sends its changes a few at a time, as its outbox would: each until it is acknowledged."""

    def __init__(self, site: NatsSite, name: str, ready: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.node, self.changes = SmallNode(site, name), [make_change(name, n) for n in range(1, CHANGES + 1)]
        self.acknowledged, self.failures, self.rejected = 0, 0, ""
        self._ready = ready

    def run(self) -> None:
        while self.acknowledged < CHANGES and not self.rejected:
            self._ready.wait()
            batch = self.changes[self.acknowledged : self.acknowledged + AT_ONCE]
            try:
                self.acknowledged = self.node.client.report(self.node.report(*batch)).acked_seq
            except ControllerUnreachable:
                self.failures += 1
            except ControllerError as error:
                self.rejected = str(error)
        self.node.close()


class Reporters:
    """All of them; `go` lets them run."""

    def __init__(self, site: NatsSite) -> None:
        self.go = threading.Event()
        names = [f"node-{number}.x" for number in range(NODES)]
        for name in names:
            site.controller.tokens[name] = site.controller.issue("--node", name)
        self.all = [Reporter(site, name, self.go) for name in names]
        for reporter in self.all:
            reporter.start()

    def count(self) -> int:
        """Changes that were acknowledged."""
        return sum(reporter.acknowledged for reporter in self.all)

    def failures(self) -> int:
        """Reports that were not delivered."""
        return sum(reporter.failures for reporter in self.all)

    def finish(self, site: NatsSite) -> None:
        """Wait until all is acknowledged, and hold it against the database."""
        self.go.set()
        eventually(
            lambda: self.count() == NODES * CHANGES or any(r.rejected for r in self.all),
            lambda: f"{self.count()} acknowledged; {site.log('ingest.log')[-3000:]}",
            WITHIN_S,
        )
        assert [r.rejected for r in self.all if r.rejected] == []
        with sqlite3.connect(f"file:{site.place}/r.db?mode=ro", uri=True) as db:
            stored = db.execute("SELECT id, node, body FROM findings WHERE kind = 'ecc/sbe' ORDER BY id").fetchall()
            set_aside = db.execute("SELECT count(*) FROM set_aside").fetchone()
        expected = sorted((c.finding.id, r.name) for r in self.all for c in r.changes)
        assert [(found, node) for found, node, _ in stored] == expected
        assert {msgspec.json.decode(body, type=_Stored).count for *_, body in stored} == {1}
        assert set_aside == (0,)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[NatsSite]:
    site = NatsSite(tmp_path)
    site.start()
    yield site
    site.close()


def kill_server(site: NatsSite) -> None:
    assert site.server is not None
    end(site.server)
    site.start_server()


def kill_ingest(site: NatsSite) -> None:
    assert site.ingest is not None
    end(site.ingest)
    site.start_ingest()


def kill_leader(site: NatsSite) -> None:
    site.controller.end(signal.SIGKILL)
    site.controller.start()


@pytest.mark.parametrize("seed", range(3))
def test_whatever_dies_loses_and_repeats_nothing(site: NatsSite, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - no secret
    reporters = Reporters(site)
    reporters.go.set()
    disasters: list[Callable[[NatsSite], None]] = [kill_server, kill_ingest, kill_leader] * 2
    dice.shuffle(disasters)
    done = 0
    for disaster in disasters:
        done = min(done + dice.randrange(10, 40), NODES * CHANGES)
        eventually(lambda due=done: reporters.count() >= due, "it goes on", WITHIN_S)
        disaster(site)
    reporters.finish(site)


def test_a_server_that_stands_still_delays_and_loses_nothing(site: NatsSite) -> None:
    reporters = Reporters(site)
    reporters.go.set()
    eventually(lambda: reporters.count() > NODES, "it has begun")
    assert site.server is not None
    site.server.send_signal(signal.SIGSTOP)
    before = reporters.failures()
    eventually(lambda: reporters.failures() >= before + NODES, "the nodes notice", WITHIN_S)
    site.server.send_signal(signal.SIGCONT)
    reporters.finish(site)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_of_the_server_delays_and_loses_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=True)
    site = NatsSite(tmp_path, store=disk / "store")
    try:
        site.start()
        reporters = Reporters(site)
        reporters.go.set()
        eventually(lambda: reporters.count() > NODES, "it has begun")
        with (disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(4096))
        before = reporters.failures()
        eventually(lambda: reporters.failures() >= before + NODES, "the nodes notice", WITHIN_S)
        (disk / "filler").unlink()
        kill_server(site)  # a server that found its disk full has switched JetStream off until its next start
        reporters.finish(site)
    finally:
        site.close()
        subprocess.run(["umount", "-l", str(disk)], check=True)
