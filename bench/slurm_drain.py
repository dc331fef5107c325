"""How long from a fault to a drained node: a real slurmctld with many slurmd, a real remediator, reports over HTTP.

Usage: bench/slurm_drain.py [--nodes N] [--rounds R] [--ask text|json]

One fault after another, then all nodes at once. When a node was drained is what slurmctld's own log says; the clocks are one
machine's. Detection on the node is not in it (bench/node_daemon.py).
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from datetime import datetime
from pathlib import Path

from bench.controller_process import Centre
from healthctl.demo.slurm_cluster import ClusterShape, SlurmCluster, explain_missing_slurm
from healthctl.process_supervision.supervised_programs import SupervisedPrograms, wait_until_ready

PAUSE_S = 0.3  # between two faults, so that the one is over before the other begins
ROUND_DEADLINE_S = 120.0
DRAINED = re.compile(r"^\[([^\]]+)\] update_node: node (\S+) reason set to: gpu-healthd:", re.MULTILINE)


def drained_at(cluster: SlurmCluster) -> dict[str, float]:
    """When each node was last drained by us, UTC s, as slurmctld logged it."""
    log = (cluster.directory / "log" / "slurmctld.log").read_text()
    return {node: datetime.fromisoformat(stamp).timestamp() for stamp, node in DRAINED.findall(log)}


def one_round(centre: Centre, cluster: SlurmCluster, *, at_once: bool) -> list[tuple[float, float, float]]:
    """All nodes break and are drained; then an operator lifts it all. Seconds to decision, Slurm's drain, its answer."""
    nodes = cluster.shape.nodes
    before = drained_at(cluster)
    sent = {}
    for node in nodes:
        sent[node] = centre.report(node, faulty=True)
        if not at_once:
            time.sleep(PAUSE_S)
    wait_until_ready(
        lambda: (
            all(drained_at(cluster).get(node, 0.0) > before.get(node, 0.0) for node in nodes)
            and all(centre.events("action_ended", "done").get(node, 0.0) > sent[node] for node in nodes)
        ),
        ROUND_DEADLINE_S,
        "every node to be drained",
    )
    decided, drained = centre.events("decision", ""), drained_at(cluster)
    ended = centre.events("action_ended", "done")
    figures = [(decided[n] - sent[n], drained[n] - sent[n], ended[n] - sent[n]) for n in nodes]
    for node in nodes:
        centre.report(node, faulty=False)
    cluster.command("scontrol", "update", f"nodename={','.join(nodes)}", "state=resume")
    wait_until_ready(
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
    if why := explain_missing_slurm():
        print(f"no Slurm here: {why}")
        return
    shape = ClusterShape(nodes=tuple(f"n{number:02}" for number in range(1, options.nodes + 1)))
    with tempfile.TemporaryDirectory(prefix="gh-slurm-") as place, SupervisedPrograms(Path(place) / "log") as programs:
        cluster = SlurmCluster(Path(place) / "slurm", programs, shape)
        cluster.start()
        scheduler = f"{{kind: slurm, slurm: {{conf: {cluster.conf}, ask: {options.ask}}}}}"
        centre = Centre(Path(place), shape.nodes, scheduler)
        try:
            for at_once in (False, True):
                rows = [row for _ in range(options.rounds) for row in one_round(centre, cluster, at_once=at_once)]
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
