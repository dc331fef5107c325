"""From a kernel line to the order in every mailbox of the job, and to the drained or cordoned node: real daemons, a real remediator.

Usage: bench/whole_path.py [--faults N] [--scheduler slurm|kubernetes]

Each fault falls on a node of its own, one after another, and each such node trains one job together with a rank elsewhere; so an order is delivered to
two daemons. All daemons read this machine's kernel log, as each reads its own on a cluster. The scheduler is a real slurmctld with a slurmd a node, or the
Kubernetes API server of the tests. The network is loopback.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import requests

from bench.controller_process import Centre, token_of
from bench.measured_node import Node, build_scenario
from bench.minimum_costs import kmsg_usable
from bench.slurm_drain import drained_at
from healthctl.demo.slurm_cluster import ClusterShape, SlurmCluster, explain_missing_slurm
from healthctl.process_supervision.supervised_programs import SupervisedPrograms, wait_until_ready
from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from healthd.trainer.beacons.beacon_directory import prepare_directory
from vocabulary.driver_log.injected_line import mark_injected_line
from vocabulary.driver_log.xid_line import format_xid

RANKS_PER_PARTNER = 8
KNOWN_DEADLINE_S = 120.0
FAULT_DEADLINE_S = 20.0
BETWEEN_S = 1.0
LOOK_EVERY_S = 0.0005
POLICY = """\
playbook: 1
about: what the shipped playbook begins with when a GPU has fallen off the bus
rules:
  - {name: out, why: a bench, match: {findings: [xid/79]}, steps: [[cordon, {notify_trainer: abort, timeout_s: 5}]]}
"""

HeldAt = Callable[[str], float | None]
"""When the scheduler held a node (UTC s), or None."""


class Passed(NamedTuple):
    """Seconds since right before the line was written."""

    mailboxes_s: float
    held_s: float


class Site(NamedTuple):
    """A scheduler that was brought up: how the remediator reaches it, how to see that it holds a node, and how often to look."""

    scheduler: str
    held_at: HeldAt
    every_s: float


@contextlib.contextmanager
def run_slurm_site(place: Path, nodes: tuple[str, ...]) -> Iterator[Site]:
    """A real Slurm; a drain counts from slurmctld's own log."""
    with SupervisedPrograms(place / "log") as programs:
        cluster = SlurmCluster(place / "slurm", programs, ClusterShape(nodes=nodes))
        cluster.start()
        yield Site(
            f"{{kind: slurm, slurm: {{conf: {cluster.conf}}}}}", lambda node: drained_at(cluster).get(node), 0.02
        )


@contextlib.contextmanager
def run_kubernetes_site(place: Path, nodes: tuple[str, ...]) -> Iterator[Site]:
    """The API server of the tests, in this process; a cordon counts when it is seen in what the server keeps."""
    from tests.nodes.fake_kubernetes.cluster import running  # noqa: PLC0415 - the client alone takes a second to import

    with running(place, nodes=0) as cluster:
        for node in nodes:
            cluster.node(node)
        kubeconfig = cluster.options().kubeconfig

        def held_at(node: str) -> float | None:
            return time.time() if cluster.see(node)["spec"].get("unschedulable") else None

        yield Site(f"{{kind: kubernetes, kubernetes: {{kubeconfig: {kubeconfig}}}}}", held_at, 0.001)


SITES = {"slurm": run_slurm_site, "kubernetes": run_kubernetes_site}


def measure_whole_path(scheduler: str, faults: int) -> list[Passed]:
    """So many faults, each on a node that was well."""
    run = f"b{time.time_ns() // 10**6 % 10**8}"  # the kernel log remembers earlier runs
    broken = tuple(f"{run}n{number:02}" for number in range(faults))
    partners = tuple(f"{run}p{number:02}" for number in range(-(-faults // RANKS_PER_PARTNER)))
    with (
        tempfile.TemporaryDirectory(prefix="gh-path-") as folder,
        tempfile.TemporaryDirectory(prefix="gh-path-", dir="/dev/shm") as shared,
    ):
        Path(folder).chmod(0o755)
        with SITES[scheduler](Path(folder), broken + partners) as site, contextlib.ExitStack() as stack:
            centre = Centre(Path(folder), broken + partners, site.scheduler, POLICY)
            stack.callback(centre.stop)
            nodes = {name: _node(Path(folder), Path(shared), name, centre) for name in broken + partners}
            for node in nodes.values():
                stack.enter_context(node)
            jobs = {name: _job(Path(shared), name, partners[n // RANKS_PER_PARTNER]) for n, name in enumerate(broken)}
            for beacon in (beacon for job in jobs.values() for beacon in job):
                stack.callback(beacon.close)
            wait_until_ready(
                lambda: _all_known(centre, broken), KNOWN_DEADLINE_S, "every node with its job at the centre"
            )
            return [_fault(nodes[name], jobs[name], site) for name in broken]


def _node(folder: Path, shared: Path, name: str, centre: Centre) -> Node:
    place, beacons = folder / name, shared / name
    place.mkdir()
    prepare_directory(str(beacons))
    token = place / "centre-token"
    token.write_text(f"{token_of(name)}\n")
    remediator = {"url": centre.url, "token_file": str(token), "report_interval_s": 2.0}
    return Node(
        place,
        f"{name}",
        build_scenario(8, costs=False),
        kmsg=kmsg_usable(),
        beacon_dir=str(beacons),
        remediator=remediator,
    )


def _job(shared: Path, node: str, partner: str) -> tuple[Beacon, Beacon]:
    """A rank on each of the two, that has stepped."""
    ranks = [
        Beacon.create(str(shared / name), RankPlacement(f"job-{node}", 0, rank, 2))
        for rank, name in enumerate((node, partner))
    ]
    for beacon in ranks:
        beacon.begin_step(1)
        beacon.end_step()
    return ranks[0], ranks[1]


def _all_known(centre: Centre, nodes: tuple[str, ...]) -> bool:
    headers = {"Authorization": f"Bearer {token_of('bench')}"}
    time.sleep(0.3)
    answer = requests.get(f"{centre.url}/v1/nodes", headers=headers, timeout=30)
    known = {node["node"]: node for node in answer.json().get("nodes", [])} if answer.ok else {}
    return all(known.get(name, {}).get("jobs") for name in nodes)


def _fault(node: Node, job: tuple[Beacon, Beacon], site: Site) -> Passed:
    """One line, until both mailboxes have the order and the scheduler holds the node."""
    time.sleep(BETWEEN_S)
    text = mark_injected_line(
        node.name, format_xid(79, "0000:10:00.0", pid=1, process="bench", detail="GPU has fallen off the bus.")
    )
    began, clock = time.time(), time.perf_counter()
    if node.log is None:
        with Path("/dev/kmsg").open("wb", buffering=0) as kmsg:
            kmsg.write(f"<4>{text}\n".encode())
    else:
        with node.log.open("a") as file:
            file.write(f"{text}\n")
    waiting, delivered = list(job), 0.0
    held, look_at = None, 0.0
    while waiting or held is None:
        if time.perf_counter() - clock > FAULT_DEADLINE_S:
            raise SystemExit(
                f"{node.name}: {len(waiting)} mailboxes without the order, {'held' if held else 'not held'}"
            )
        if waiting:
            waiting = [beacon for beacon in waiting if beacon.poll() is None]
            delivered = time.perf_counter() - clock
        if held is None and time.perf_counter() >= look_at:
            held, look_at = site.held_at(node.name), time.perf_counter() + site.every_s
        time.sleep(LOOK_EVERY_S)
    return Passed(delivered, held - began)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=16)
    parser.add_argument("--scheduler", choices=tuple(SITES), default="slurm")
    asked = parser.parse_args()
    if asked.scheduler == "slurm" and (why := explain_missing_slurm()):
        print(f"no Slurm here: {why}")
        return
    rows = measure_whole_path(asked.scheduler, asked.faults)
    print(f"| {asked.scheduler}, {len(rows)} faults | p50 | most |\n|---|---:|---:|")
    for name, values in zip(("in every mailbox", "node held"), zip(*rows, strict=True), strict=True):
        print(f"| kernel line → {name} | {statistics.median(values) * 1e3:.1f} ms | {max(values) * 1e3:.1f} ms |")


if __name__ == "__main__":
    main()
