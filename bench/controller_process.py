"""A remediator process for a bench: a policy that acts at once, budgets that never say no, tokens for its nodes."""

from __future__ import annotations

import hashlib
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import requests

from healthctl.process_supervision.supervised_programs import wait_until_ready
from remediator.model.journal_records import AuditEvent
from remediator.store.journal import Journal
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import Report, encode_message

ROOT = Path(__file__).parents[1]

POLICY = """\
playbook: 1
about: a cordon, and nothing that waits
rules:
  - {name: out, why: a bench, match: {findings: [xid/79]}, steps: [cordon]}
"""
NO_BUDGET = {
    "isolated_max": 1000,
    "isolations_per_hour_max": 10**9,
    "isolated_fraction_per_hour_max": 1e9,
    "isolation_gap_s": 0,
    "open_per_rack_max": 10**9,
    "open_per_switch_max": 10**9,
    "ejects_per_job_hour_max": 10**9,
    "ejects_per_job_day_max": 10**9,
    "common_cause_nodes": 10**9,
    "breaker_nodes_min": 10**9,
}


def token_of(name: str) -> str:
    """What the node or person of that name shows."""
    return f"ghd_{name}"


class Centre:
    """A remediator process. `scheduler` is its configuration as YAML; each of `nodes` has the token that `token_of` says."""

    def __init__(self, place: Path, nodes: Iterable[str], scheduler: str, policy_text: str = POLICY) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.database, config, policy = place / "r.db", place / "r.yaml", place / "p.yaml"
        policy.write_text(policy_text)
        budget = ", ".join(f"{key}: {value}" for key, value in NO_BUDGET.items())
        config.write_text(
            f"listen: 127.0.0.1:{port}\ndatabase: sqlite:///{self.database}\nmode: act\nplaybooks: [{policy}]\n"
            f"budget: {{{budget}}}\nscheduler: {scheduler}\n"
        )
        Journal(f"sqlite:///{self.database}").prepare()
        with sqlite3.connect(self.database) as db:
            db.executemany(
                "insert into tokens (digest, role, name, issued_at) values (?, ?, ?, 0)",
                [
                    (hashlib.sha256(token_of(name).encode()).hexdigest(), role, name)
                    for role, name in (*(("node", node) for node in nodes), ("viewer", "bench"))
                ],
            )
        command = [sys.executable, "-m", "remediator", "serve", "--config", str(config)]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        self.seq = 0
        self.http = requests.Session()
        wait_until_ready(self._ready, 60, "the remediator")

    def _ready(self) -> bool:
        try:
            return requests.get(f"{self.url}/healthz", timeout=5).ok
        except requests.ConnectionError:
            return False

    def report(self, node: str, *, faulty: bool) -> float:
        """Send the node's whole state; UTC seconds of right before."""
        self.seq += 1
        where, origin = Component(kind=ComponentKind.GPU, name=f"GPU-{node}"), str(self.seq)
        found = Finding(
            id=finding_id(node, "xid", "79", where, origin),
            origin=origin,
            node=node,
            component=where,
            check="xid",
            code="79",
            severity=Severity.FATAL,
            summary="GPU has fallen off the bus",
            first_seen=time.time(),
            last_seen=time.time(),
        )
        body = Report(
            version=1,
            node=node,
            boot_id="b",
            agent="a",
            seq=self.seq,
            sent_at=time.time(),
            ttl_s=3600.0,
            health=Health.UNHEALTHY if faulty else Health.HEALTHY,
            active=(found,) if faulty else (),
        )
        begun = time.time()
        answer = self.http.post(
            f"{self.url}/v1/nodes/{node}/report",
            data=encode_message(body),
            headers={"Authorization": f"Bearer {token_of(node)}"},
            timeout=30,
        )
        answer.raise_for_status()
        return begun

    def events(self, kind: str, word: str) -> dict[str, float]:
        """When the newest such line of each node was written down (UTC s)."""
        with sqlite3.connect(f"file:{self.database}?mode=ro", uri=True) as db:
            rows = db.execute("select body from audit where kind = ? order by seq", (kind,)).fetchall()
        lines = [msgspec.json.decode(body, type=AuditEvent) for (body,) in rows]
        return {line.node: line.at for line in lines if word in line.text}

    def stop(self) -> None:
        """End it in good order."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
