"""How long 1000 cordons that are due together take: node by node, and in one call.

    python -m bench.cordon_bursts slurm [--nodes N] [--rounds R]
    python -m bench.cordon_bursts kubernetes [--nodes N] [--rounds R] [--calls-per-s C]

Slurm is a real slurmctld with nodes that have no slurmd; Kubernetes is the tests' API server in this process. `node by
node` is what the executor did before: four side by side. Both ways in turn, from the call to the last node held, and to
the last outcome. Decisions, database and queue are not in it.
"""

from __future__ import annotations

import argparse
import re
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from healthctl.demo.slurm_cluster import ClusterShape, SlurmCluster, explain_missing_slurm
from healthctl.process_supervision.supervised_programs import SupervisedPrograms
from remediator.model.scheduler_hold import ActionResult
from remediator.schedulers.kubernetes.kubernetes_scheduler import KubernetesScheduler
from remediator.schedulers.scheduler_protocol import NodeCordon, cordon_each
from remediator.schedulers.slurm.slurm_options import SlurmOptions
from remediator.schedulers.slurm.slurm_scheduler import SlurmScheduler
from tests.nodes.fake_kubernetes.cluster import Cluster, running

WAYS = ("node by node", "in one call")
AT_ONCE_BEFORE = 4
DRAINED = re.compile(r"^\[([^\]]+)\] update_node: node \S+ reason set to: gpu-healthd:", re.MULTILINE)


class Cost(msgspec.Struct, frozen=True):
    """Seconds to the last hold and the last outcome, processor seconds, and how often the scheduler was asked."""

    held_s: float
    ended_s: float
    processor_s: float
    asked: int


def _processor_s() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def _cordon(scheduler: SlurmScheduler | KubernetesScheduler, nodes: Sequence[str], *, together: bool) -> None:
    cordons = [NodeCordon(node, f"gpu-healthd: inc-{node} gpu-lost", "gpu-lost") for node in nodes]
    outcomes = dict(
        scheduler.cordon_many(cordons, lambda asked: asked)
        if together
        else cordon_each(scheduler.cordon, cordons, lambda asked: asked, AT_ONCE_BEFORE)
    )
    wrong = {outcome.detail for outcome in outcomes.values() if outcome.result is not ActionResult.DONE}
    if wrong or len(outcomes) != len(nodes):
        raise RuntimeError(f"{len(outcomes)} outcomes, and {wrong}")


def _timed(cordon: Callable[[], None], held_at: Callable[[], float], asked: Callable[[], int]) -> Cost:
    """`held_at`: when the last node was held, UTC s; `asked`: processes or requests so far."""
    begun, used, before = time.time(), _processor_s(), asked()
    cordon()
    return Cost(held_at() - begun, time.time() - begun, _processor_s() - used, asked() - before)


class CountingSlurm(SlurmScheduler):
    """Counts the processes that its commands start."""

    processes = 0

    def __init__(self, conf: Path) -> None:
        super().__init__(SlurmOptions(conf=str(conf)))
        run = self._slurm._run  # type: ignore[attr-defined]  # noqa: SLF001 - the only way to count

        def counted(*words: object) -> str:
            self.processes += 1
            return str(run(*words))

        self._slurm._run = counted  # type: ignore[attr-defined]  # noqa: SLF001 - as above


def slurm_rounds(nodes: int, rounds: int) -> Iterator[tuple[str, Cost]]:
    """Drain all nodes of a real slurmctld; then lift it all."""
    names = [f"m{number:04}" for number in range(1, nodes + 1)]
    every = f"m[0001-{nodes:04}]"
    silent = {"SlurmdTimeout": "0", "NodeName": f"{every} NodeAddr=127.0.0.1 Port=1 CPUs=8 State=UNKNOWN"}
    shape = ClusterShape(nodes=("n1",), settings=silent)
    with tempfile.TemporaryDirectory(prefix="gh-slurm-") as place, SupervisedPrograms(Path(place) / "log") as programs:
        cluster = SlurmCluster(Path(place) / "slurm", programs, shape)
        cluster.start()
        cluster.command("scontrol", "update", f"nodename={every}", "state=down", "reason=first")
        cluster.command("scontrol", "update", f"nodename={every}", "state=resume")
        scheduler = CountingSlurm(cluster.conf)
        log = cluster.directory / "log" / "slurmctld.log"

        def last_drain() -> float:
            return datetime.fromisoformat(DRAINED.findall(log.read_text())[-1]).timestamp()

        for _ in range(rounds):
            for way in WAYS:
                together = way == WAYS[1]
                yield (
                    way,
                    _timed(
                        lambda together=together: _cordon(scheduler, names, together=together),  # type: ignore[misc]  # bound now
                        last_drain,
                        lambda: scheduler.processes,
                    ),
                )
                cluster.command("scontrol", "update", f"nodename={every}", "state=resume")


def kubernetes_rounds(nodes: int, rounds: int, calls_per_s: float) -> Iterator[tuple[str, Cost]]:
    """Cordon all nodes of a new API server."""
    names = [f"node{number}" for number in range(1, nodes + 1)]
    for _ in range(rounds):
        for way in WAYS:
            with tempfile.TemporaryDirectory() as place, running(Path(place), nodes) as cluster:
                scheduler = cluster.scheduler(calls_per_s=calls_per_s, deadline_s=10.0, stale_after_s=15.0)
                scheduler.observe(names[:1])
                held: list[float] = []
                cluster.server.before_write = _Clock(cluster, held)
                together = way == WAYS[1]
                yield (
                    way,
                    _timed(
                        lambda s=scheduler, t=together: _cordon(s, names, together=t),  # type: ignore[misc]  # bound now
                        lambda held=held: held[-1],  # type: ignore[misc]  # as above
                        lambda c=cluster: len(c.server.asked),  # type: ignore[misc]  # as above
                    ),
                )


class _Clock(list[Callable[[], None]]):
    """Notes the time of every write of a node, but not of its condition."""

    def __init__(self, cluster: Cluster, held: list[float]) -> None:
        super().__init__([lambda: None])
        self._cluster, self._held = cluster, held

    def pop(self, _: object = -1) -> Callable[[], None]:
        """Called before each write."""
        if self._cluster.server.asked[-1][1].resource == "nodes":
            self._held.append(time.time())
        return lambda: None


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scheduler", choices=("slurm", "kubernetes"))
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls-per-s", type=float, default=20.0, help="of the Kubernetes client (default 20)")
    options = parser.parse_args()
    if options.scheduler == "slurm" and (why := explain_missing_slurm()):
        print(f"no Slurm here: {why}")
        return
    found: dict[str, list[Cost]] = {way: [] for way in WAYS}
    rounds = (
        slurm_rounds(options.nodes, options.rounds)
        if options.scheduler == "slurm"
        else kubernetes_rounds(options.nodes, options.rounds, options.calls_per_s)
    )
    for way, cost in rounds:
        found[way].append(cost)
        print(f"{way}: {cost}", flush=True)
    print(f"| {options.nodes} cordons | last node held | last outcome | processor time | processes or requests |")
    print("|---|---:|---:|---:|---:|")
    for way in WAYS:
        held, ended, used, asked = (
            statistics.median(getattr(cost, name) for cost in found[way]) for name in Cost.__struct_fields__
        )
        print(f"| {way} | {held:.2f} s | {ended:.2f} s | {used:.2f} s | {asked:.0f} |")


if __name__ == "__main__":
    main()
