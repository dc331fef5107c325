"""A real remediator process and a real receiver: many nodes with one cause are one matter to people, told as it grows."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_process import Controller

from remediator.model.credentials import Role
from remediator.store.journal import Journal
from remediator.store.token_store import Tokens
from tests.unit.remediator.act.webhooks.peer import Peer, until
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import FindingChange, RankStatus, Report, Versions, encode_message

NODES = 40
GPU = Component(ComponentKind.GPU, "GPU-1", "0000:3b:00.0", 0)


class Fleet:
    """A controller, its nodes' tokens, and what each node has said so far."""

    def __init__(self, place: Path, url: str) -> None:
        self.controller = Controller(place)
        with self.controller.config.open("a") as config:
            receivers = {"chat": {"kind": "slack", "url": url, "group_s": 0}}
            alerts = {"public_url": "https://healthd.example", "receivers": receivers}
            config.write(f"alerts: {json.dumps(alerts)}\n")
        journal = Journal(f"sqlite:///{place}/r.db")
        tokens = Tokens(journal.engine)
        for n in range(1, NODES + 1):
            self.controller.tokens[f"n{n}"] = tokens.issue(Role.NODE, f"n{n}", time.time())
        journal.close()
        self.seq = 0

    def say(self, node: str, kinds: dict[str, bool], severity: Severity, job: str = "", driver: str = "") -> None:
        """A node's whole word: these findings, asserted or over."""
        self.seq += 1
        findings = [self._finding(node, kind, severity, active=active) for kind, active in kinds.items()]
        rank = RankStatus(job, 1, int(node[1:]) - 1, world=16, pid=1, step=7, phase="forward", at=time.time())
        message = Report(
            version=1,
            node=node,
            boot_id="b",
            agent="a",
            seq=self.seq,
            sent_at=time.time(),
            ttl_s=600,
            health=Health.HEALTHY,
            changes=tuple(FindingChange(self.seq * 10 + i, f) for i, f in enumerate(findings)),
            active=tuple(f for f in findings if f.active),
            ranks=(rank,) if job else (),
            versions=Versions(driver=driver),
        )
        self.controller.call("POST", f"/v1/nodes/{node}/report", node, data=encode_message(message)).raise_for_status()

    def open_incidents(self) -> list[dict[str, Any]]:
        listed = self.controller.call("GET", "/v1/incidents", "ann").json()["incidents"]
        return [each for each in listed if each["state"] != "closed"]

    @staticmethod
    def _finding(node: str, kind: str, severity: Severity, *, active: bool) -> Finding:
        check, code = kind.split("/")
        found = Finding(
            id=finding_id(node, check, code, GPU, "o"),
            node=node,
            check=check,
            code=code,
            component=GPU,
            severity=severity,
            summary=f"Xid {code}: MMU fault",
            first_seen=time.time(),
            last_seen=time.time(),
            origin="o",
        )
        return found if active else found.cleared(time.time(), "proof")


@pytest.fixture
def peer() -> Iterator[Peer]:
    server = Peer()
    yield server
    server.close()


@pytest.fixture
def fleet(tmp_path: Path, peer: Peer) -> Iterator[Fleet]:
    found = Fleet(tmp_path, peer.url)
    found.controller.start()
    yield found
    if found.controller.process is not None and found.controller.process.poll() is None:
        found.controller.end(signal.SIGKILL)


def titles(peer: Peer) -> list[str]:
    return [json.loads(body)["text"] for _, _, body in list(peer.got)]


def test_a_bug_of_one_job_is_one_matter_until_its_last_finding_has_cleared(fleet: Fleet, peer: Peer) -> None:
    nodes = [f"n{n}" for n in range(1, 17)]
    for node in nodes:
        fleet.say(node, {}, Severity.WARNING, job="llm-7b")
    for node in nodes:
        fleet.say(node, {"xid/31": True, "xid/13": True}, Severity.WARNING, job="llm-7b")
    until(lambda: any("all 16 of its nodes" in title for title in titles(peer)), "told as it grew")
    told = titles(peer)
    assert len(told) == 2, told
    assert all(title.split(": ")[-1].startswith("Job llm-7b fails with Xid") for title in told)
    assert told[1].startswith("update: ")
    (incident,) = fleet.open_incidents()
    assert (incident["node"], incident["title"]) == (
        "job:llm-7b",
        "Job llm-7b fails with Xid 13 and Xid 31 on all 16 of its nodes (16 ranks)",
    )
    for node in nodes:
        fleet.say(node, {"xid/31": False, "xid/13": False}, Severity.WARNING, job="llm-7b")
    until(lambda: len(titles(peer)) == 3, "told that it is over")
    assert titles(peer)[2].startswith("resolved: warning: Job llm-7b fails with Xid 13 and Xid 31 on all 16")
    assert not fleet.open_incidents()


def test_a_drivers_fault_is_told_with_the_fleets_total_as_it_grows(fleet: Fleet, peer: Peer) -> None:
    for n in range(1, NODES + 1):
        fleet.say(f"n{n}", {}, Severity.FATAL, driver="570.1" if n <= 30 else "550.9")
    for n in range(1, 31):
        fleet.say(f"n{n}", {"xid/119": True}, Severity.FATAL, driver="570.1")
    until(lambda: any("all 30 nodes with driver 570.1" in title for title in titles(peer)), "told as it grew")
    grown = [title for title in titles(peer) if "driver 570.1" in title]
    assert len(grown) == 2, grown
    assert grown[0].startswith("fatal: 3 of 30 nodes with driver 570.1 failed within ")
    assert grown[1].startswith("update: fatal: all 30 nodes with driver 570.1 failed within ")
    about = [each["node"] for each in fleet.open_incidents() if ":" in each["node"]]
    assert about == ["driver:570.1"]
