"""From the kernel's line to the order in the trainer's mailbox, and to the node that takes no more work."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import requests

from bench import minimum_costs
from bench.report.records import Answer, Beside, Budget, Effort, Figure, Measured, Unmeasured, at_most, summarise_values
from bench.whole_path import Passed, measure_whole_path
from healthctl.demo.slurm_cluster import ClusterShape, SlurmCluster, explain_missing_slurm
from healthctl.process_supervision.supervised_programs import SupervisedPrograms

ASKED = 20


def to_mailbox(effort: Effort) -> Measured:
    """With Kubernetes as the scheduler, which the mailbox does not wait for."""
    found = _passes("kubernetes", effort)
    line, exchange = _bare_line_s(effort), statistics.median(minimum_costs.http_exchanges(ASKED))
    beside = Beside("a bare kernel line and two bare HTTP exchanges", (line + 2 * exchange) * 1e3)
    figure = _figure("order in both ranks' mailboxes", found, lambda one: one.mailboxes_s, 150.0, beside)
    return Measured(
        figures=(figure,),
        how=f"{_HOW} The job has a rank on the broken node and one on another; the slower mailbox counts, looked into each 0.5 ms.",
        because="two commits synchronised to the disk (on the node, at the centre), the decision and two HTTP exchanges share this machine's processors with every daemon and the bench",
        moves="processors of its own for the centre; a disk that synchronises sooner",
    )


def to_held(scheduler: str, beside: Callable[[], Beside], effort: Effort) -> Answer:
    """With a real Slurm, or the API server of the tests."""
    if scheduler == "slurm" and (why := explain_missing_slurm()):
        return Unmeasured(
            f"no Slurm: {why}.", "bench/results/2026-11-slurm.md, drained in Slurm without detection: p99 193.1 ms."
        )
    found = _passes(scheduler, effort)
    return Measured(
        figures=(_figure("node held", found, lambda one: one.held_s, 300.0, beside()),),
        how=f"{_HOW} {_SEEN[scheduler]}",
        because=_BECAUSE[scheduler],
        moves=_MOVES[scheduler],
    )


_HOW = "Real daemons and a real remediator on this machine, one fault after another on nodes that were well, all over loopback; detection on the node included."
_SEEN = {
    "slurm": "A real slurmctld with a slurmd a node; a drain counts from slurmctld's own log.",
    "kubernetes": "The API server is the fake one of the tests, in the bench's process; a cordon counts when it is seen there, looked for each ms. Not run on a real API server.",
}
_BECAUSE = {
    "slurm": "a drain starts `scontrol` twice, to look and to drain, beside everything else on these processors",
    "kubernetes": "the fake API server shares one interpreter with the bench that looks into it",
}
_MOVES = {
    "slurm": "slurmrestd in place of `scontrol` (docs/how-to/slurm.md); processors of its own for the centre",
    "kubernetes": "a real API server on its own machine",
}


def _passes(scheduler: str, effort: Effort) -> list[list[Passed]]:
    return [measure_whole_path(scheduler, effort.either(4, 16)) for _ in range(effort.repeats)]


def _figure(
    named: str, found: list[list[Passed]], pick: Callable[[Passed], float], p99_ms: float, beside: Beside
) -> Figure:
    repeats = tuple(summarise_values((pick(one) for one in repeat), 1e3) for repeat in found)
    return Figure(named=named, unit="ms", repeats=repeats, limits=at_most(p99=p99_ms), beside=beside)


def _bare_line_s(effort: Effort) -> float:
    return statistics.median(minimum_costs.kernel_lines(effort.either(20, 100))) if minimum_costs.kmsg_usable() else 0.0


def _bare_scontrol() -> Beside:
    """Two runs of `scontrol` against a cluster of one node."""
    with tempfile.TemporaryDirectory(prefix="gh-path-") as folder, SupervisedPrograms(Path(folder) / "log") as programs:
        Path(folder).chmod(0o755)
        cluster = SlurmCluster(Path(folder) / "slurm", programs, ClusterShape(nodes=("n1",)))
        cluster.start()
        took = minimum_costs.time_command(["scontrol", "show", "node", "n1"], ASKED, cluster.env)
    return Beside("two bare runs of scontrol", 2 * statistics.median(took) * 1e3)


def _bare_patch() -> Beside:
    """A PATCH without a client's library or a decision."""
    from tests.nodes.fake_kubernetes.cluster import running  # noqa: PLC0415 - the client alone takes a second to import

    headers = {"Authorization": "Bearer operator", "Content-Type": "application/merge-patch+json"}
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), nodes=1) as cluster, requests.Session() as http:
        url = f"{cluster.server.url}/api/v1/nodes/node1"

        def cordon() -> None:
            http.patch(url, data='{"spec": {"unschedulable": true}}', headers=headers, timeout=10).raise_for_status()

        return Beside("a bare PATCH of the node", statistics.median(minimum_costs.time_repeats(cordon, ASKED)) * 1e3)


MAILBOX = Budget("mailbox", "Kernel line to order in the trainer's mailbox", "p99 ≤ 150 ms", to_mailbox)
SLURM = Budget(
    "drained-slurm",
    "Kernel line to node drained in Slurm, detection included",
    "p99 ≤ 300 ms",
    partial(to_held, "slurm", _bare_scontrol),
)
KUBERNETES = Budget(
    "cordoned-kubernetes",
    "Kernel line to node cordoned in Kubernetes, detection included",
    "p99 ≤ 300 ms",
    partial(to_held, "kubernetes", _bare_patch),
)
