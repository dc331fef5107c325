"""How soon a job's hot GPU is named, and who is named wrongly: `python -m bench.heat_suspects [--seeds N]`.

Synthetic jobs on a simulated clock, through the controller's `JobMonitor`: nodes report every ten seconds, healthd raises
heat after 30 s. A step takes as long as its slowest rank. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from remediator.model.journal_records import JobRef
from remediator.monitoring.job_monitor import JobMonitor, KnownFindings
from remediator.monitoring.step_windows import NodeRankReport
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import RankStatus, StepWindow

JOB = JobRef("train", 1)
STARTED_S = 1_700_000_000.0
HEAT_S, ENDS_S = 600.0, 1500.0  # since the start
RAISED_S, REPORTS_S, LOOKS_S, WINDOW_S = 30.0, 10.0, 2.0, 4.0
WINDOWS_SENT = 8
FIVE_MINUTES_S = 300.0


@dataclasses.dataclass(frozen=True)
class HotJob:
    """A job and what befalls it.

    Attributes:
        nodes, per_node, step_s, noise: ranks, seconds of a step, and the spread of a rank's own time from step to step.
        timed: whether the trainer reports forward and backward.
        slower: by how much the hot rank computes longer from the heat on.
        hot: nodes whose first GPU becomes hot; the first of them is the slow one.
        others: by how much all ranks compute longer from `others_at` on, `network`: by how much their communication does.
    """

    nodes: int = 2
    per_node: int = 1
    step_s: float = 0.5
    noise: float = 0.005
    timed: bool = True
    slower: float = 0.25
    hot: tuple[int, ...] = (0,)
    others: float = 0.0
    network: float = 0.0
    others_at: float = HEAT_S


NAMED: Mapping[str, HotJob] = {
    "1 node": HotJob(nodes=1),
    "2 nodes": HotJob(),
    "2 nodes, 10 % slower": HotJob(slower=0.10),
    "2 nodes, 10 % slower, packed sequences": HotJob(slower=0.10, noise=0.12),
    "3 nodes, step time only": HotJob(nodes=3, timed=False),
    "2 nodes, steps of 20 s": HotJob(step_s=20.0),
    "16 nodes of 8": HotJob(nodes=16, per_node=8),
    "16 nodes of 8, packed sequences": HotJob(nodes=16, per_node=8, noise=0.12),
}
NOBODY: Mapping[str, HotJob] = {
    "hot, not slower": HotJob(slower=0.0),
    "hot, not slower, packed sequences": HotJob(slower=0.0, noise=0.12, timed=False),
    "two hot GPUs": HotJob(hot=(0, 1)),
    "all nodes hot, and all ranks slower": HotJob(nodes=4, slower=0.0, others=0.25, hot=(0, 1, 2, 3)),
    "slower network at that moment": HotJob(slower=0.0, network=0.5),
    "all ranks slower at that moment": HotJob(slower=0.0, others=0.25, nodes=3),
    "step time only, slower five minutes before": HotJob(slower=0.0, network=0.5, timed=False, others_at=HEAT_S - 300),
    "step time only, slower six minutes later": HotJob(slower=0.0, network=0.5, timed=False, others_at=HEAT_S + 360),
    "step time only, slower network at that moment": HotJob(slower=0.0, network=0.5, timed=False),
}


class HotJobRun:
    """One job, reported window by window."""

    def __init__(self, job: HotJob, seed: int) -> None:
        self._job, self._draw = job, np.random.default_rng(seed)
        self._size = 1
        while self._size * job.step_s < WINDOW_S:
            self._size *= 2
        self._ranks = job.nodes * job.per_node
        self._windows: list[list[StepWindow]] = [[] for _ in range(self._ranks)]
        self._first, self._ends = 0, 0.0
        self._monitor = JobMonitor(JOB)
        self._findings: dict[str, Finding] = {}

    def first_named(self) -> tuple[float, str] | None:
        """Run it; return seconds from the heat, and the node, of the first warning about a node or GPU."""
        for look in range(round(ENDS_S / LOOKS_S)):
            now = look * LOOKS_S
            while self._ends <= now:
                self._finish_window()
            for node in self._job.hot if HEAT_S + RAISED_S <= now < HEAT_S + RAISED_S + LOOKS_S else ():
                finding = _heat_finding(f"n{node}", f"GPU-{node * self._job.per_node}", STARTED_S + now)
                self._findings[finding.id] = finding
            heard = [self._report(node, now) for node in range(self._job.nodes) if (look + node) % 5 == 0]
            if heard:
                self._monitor.take(heard)
            known = KnownFindings(self._findings.values())
            news = [f for judge in self._monitor.judgements(known, lambda _: True, STARTED_S + now) for f in judge()]
            self._findings |= {finding.id: finding for finding in news}
            named = [f for f in news if f.check == "straggler" and f.severity is not Severity.INFO]
            if named:
                return now - HEAT_S, named[0].node
        return None

    def _finish_window(self) -> None:
        job, at = self._job, self._ends
        usual = job.step_s * 0.8 * np.ones(self._ranks)
        if at >= HEAT_S:
            usual[job.hot[0] * job.per_node] *= 1 + job.slower
        if at >= job.others_at:
            usual *= 1 + job.others
        own = usual * np.exp(job.noise * self._draw.standard_normal((self._size, self._ranks)))
        network = job.step_s * 0.2 * (1 + (job.network if at >= job.others_at else 0.0))
        step_s = float(own.max(axis=1).mean()) + network
        for rank, mean in enumerate(own.mean(axis=0).tolist()):
            window = StepWindow(self._first, self._size, self._size, step_s)
            if job.timed:
                window = StepWindow(self._first, self._size, self._size, step_s, 0.35 * mean, 0.65 * mean, network, 0.0)
            self._windows[rank] = [*self._windows[rank], window][-WINDOWS_SENT:]
        self._first += self._size
        self._ends = at + self._size * step_s

    def _report(self, node: int, now: float) -> NodeRankReport:
        each = range(node * self._job.per_node, (node + 1) * self._job.per_node)
        ranks = [
            RankStatus(
                JOB.job, JOB.attempt, rank, self._ranks, 1, self._first, "step", STARTED_S + now, gpu=f"GPU-{rank}",
                windows=tuple(self._windows[rank]),
            )
            for rank in each
        ]  # fmt: skip
        return NodeRankReport(f"n{node}", ranks, STARTED_S + now, STARTED_S + now)


def _heat_finding(node: str, gpu: str, at: float) -> Finding:
    about = Component(ComponentKind.GPU, gpu)
    return Finding(
        id=finding_id(node, "throttle", "hw_thermal", about, "b:1"), node=node, check="throttle", code="hw_thermal",
        component=about, severity=Severity.WARNING, summary="too hot", first_seen=at, last_seen=at, origin="b:1", level=True,
    )  # fmt: skip


def print_jobs(title: str, jobs: Mapping[str, HotJob], seeds: int) -> None:
    print(f"\n| {title} | hot GPU's node named | within five minutes | seconds: median, most | other node named |")
    print("|---|---:|---:|---:|---:|")
    for name, job in jobs.items():
        told = [HotJobRun(job, seed).first_named() for seed in range(seeds)]
        right = [seconds for seconds, node in _named(told) if node == f"n{job.hot[0]}"]
        took = f"{np.median(right):.0f}, {max(right):.0f}" if right else ""
        soon = sum(seconds <= FIVE_MINUTES_S for seconds in right)
        wrong = sum(node != f"n{job.hot[0]}" for _, node in _named(told))
        print(f"| {name} | {len(right)} of {seeds} | {soon} | {took} | {wrong} |", flush=True)


def _named(told: Iterable[tuple[float, str] | None]) -> list[tuple[float, str]]:
    return [each for each in told if each is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    print_jobs("one GPU slow by heat", NAMED, seeds)
    print_jobs("nobody is to be named", NOBODY, seeds)


if __name__ == "__main__":
    main()
