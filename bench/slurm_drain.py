"""How long from a fault to a drained node: a real slurmctld with many slurmd, a real remediator, reports over HTTP.

Usage: bench/slurm_drain.py [--nodes N] [--rounds R] [--ask text|json]

One fault after another, then all nodes at once. When a node was drained is what slurmctld's own log says; the clocks are one
machine's. Detection on the node is not in it (bench/node_daemon.py).
"""

from __future__ import annotations

import argparse
import hashlib
import re
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402 - behind the path
import requests  # noqa: E402 - behind the path

from healthctl.demo.slurm_cluster import ClusterShape, SlurmCluster, why_not  # noqa: E402 - same
from healthctl.supervised.programs import Programs, wait_for  # noqa: E402 - same
from remediator.model.records import AuditEvent  # noqa: E402 - same
from remediator.store.journal import Journal  # noqa: E402 - same
from vocabulary.finding import Finding, Severity, finding_id  # noqa: E402 - same
from vocabulary.health import Health  # noqa: E402 - same
from vocabulary.identity import Component, ComponentKind  # noqa: E402 - same
from vocabulary.wire import Report, encode  # noqa: E402 - same

PAUSE_S = 0.3  # between two faults, so that the one is over before the other begins
ROUND_DEADLINE_S = 120.0
DRAINED = re.compile(r"^\[([^\]]+)\] update_node: node (\S+) reason set to: gpu-healthd:", re.MULTILINE)
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


class Centre:
    """A remediator process that drains through Slurm, and nodes that report to it."""

    def __init__(self, place: Path, cluster: SlurmCluster, ask: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.cluster = cluster
        self.database, config, policy = place / "r.db", place / "r.yaml", place / "p.yaml"
        policy.write_text(POLICY)
        slurm = f"{{conf: {cluster.conf}, ask: {ask}}}"
        budget = ", ".join(f"{key}: {value}" for key, value in NO_BUDGET.items())
        config.write_text(
            f"listen: 127.0.0.1:{port}\ndatabase: sqlite:///{self.database}\nmode: act\nplaybooks: [{policy}]\n"
            f"budget: {{{budget}}}\nscheduler: {{kind: slurm, slurm: {slurm}}}\n"
        )
        Journal(f"sqlite:///{self.database}").prepare()
        with sqlite3.connect(self.database) as db:
            db.executemany(
                "insert into tokens (digest, role, name, issued_at) values (?, ?, ?, 0)",
                [
                    (hashlib.sha256(f"ghd_{name}".encode()).hexdigest(), role, name)
                    for role, name in (*(("node", node) for node in cluster.shape.nodes), ("viewer", "bench"))
                ],
            )
        command = [sys.executable, "-m", "remediator", "serve", "--config", str(config)]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        self.seq = 0
        self.http = requests.Session()
        wait_for(self._ready, 60, "the remediator")

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
            data=encode(body),
            headers={"Authorization": f"Bearer ghd_{node}"},
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


def drained_at(cluster: SlurmCluster) -> dict[str, float]:
    """When each node was last drained by us, UTC s, as slurmctld logged it."""
    log = (cluster.directory / "log" / "slurmctld.log").read_text()
    return {node: datetime.fromisoformat(stamp).timestamp() for stamp, node in DRAINED.findall(log)}


def one_round(centre: Centre, *, at_once: bool) -> list[tuple[float, float, float]]:
    """All nodes break and are drained; then an operator lifts it all. Seconds to decision, Slurm's drain, its answer."""
    nodes = centre.cluster.shape.nodes
    before = drained_at(centre.cluster)
    sent = {}
    for node in nodes:
        sent[node] = centre.report(node, faulty=True)
        if not at_once:
            time.sleep(PAUSE_S)
    wait_for(
        lambda: (
            all(drained_at(centre.cluster).get(node, 0.0) > before.get(node, 0.0) for node in nodes)
            and all(centre.events("action_ended", "done").get(node, 0.0) > sent[node] for node in nodes)
        ),
        ROUND_DEADLINE_S,
        "every node to be drained",
    )
    decided, drained = centre.events("decision", ""), drained_at(centre.cluster)
    ended = centre.events("action_ended", "done")
    figures = [(decided[n] - sent[n], drained[n] - sent[n], ended[n] - sent[n]) for n in nodes]
    for node in nodes:
        centre.report(node, faulty=False)
    centre.cluster.command("scontrol", "update", f"nodename={','.join(nodes)}", "state=resume")
    wait_for(
        lambda: all(centre.events("incident_closed", "").get(node, 0.0) > sent[node] for node in nodes),
        ROUND_DEADLINE_S,
        "every incident to be closed",
    )
    return figures


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--ask", choices=("text", "json"), default="text")
    options = parser.parse_args()
    if why := why_not():
        print(f"no Slurm here: {why}")
        return
    shape = ClusterShape(nodes=tuple(f"n{number:02}" for number in range(1, options.nodes + 1)))
    with tempfile.TemporaryDirectory(prefix="gh-slurm-") as place, Programs(Path(place) / "log") as programs:
        cluster = SlurmCluster(Path(place) / "slurm", programs, shape)
        cluster.start()
        centre = Centre(Path(place), cluster, options.ask)
        try:
            for at_once in (False, True):
                rows = [row for _ in range(options.rounds) for row in one_round(centre, at_once=at_once)]
                _print("all nodes at once" if at_once else "one fault after another", rows)
        finally:
            centre.stop()


def _print(what: str, rows: list[tuple[float, float, float]]) -> None:
    print(f"| {what} (n {len(rows)}) | p50 | p99 | most |\n|---|---:|---:|---:|")
    for name, values in zip(
        ("decision", "drained in Slurm", "its answer in the record"), zip(*rows, strict=True), strict=True
    ):
        cuts = statistics.quantiles(values, n=100)
        print(f"| {name} | {cuts[49] * 1e3:.1f} ms | {cuts[98] * 1e3:.1f} | {max(values) * 1e3:.1f} |")


if __name__ == "__main__":
    main()
