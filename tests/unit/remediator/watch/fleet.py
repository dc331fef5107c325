"""Nodes that tell of the ranks of a job, as the watch hears them: windows of four steps, eight ranks a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from remediator.model.journal_records import JobRef
from remediator.monitoring.job_monitor import JobMonitor, KnownFindings
from remediator.monitoring.step_windows import NodeRankReport
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import RankStatus, StepWindow

TRAIN = JobRef("train", 1)
ROW_S = 4.0
STEPS = 4


class Fleet:
    """`own` says how long a rank computes in a row, 1.0 usually; with `stages`, each node is a stage of the pipeline."""

    def __init__(
        self, nodes: int = 2, per_node: int = 8, noise: float = 0.02, seed: int = 0, *, stages: bool = False
    ) -> None:
        self.names = [f"n{number}" for number in range(nodes)]
        self.per_node, self.noise, self.stages = per_node, noise, stages
        self.row = 0
        self._draw = np.random.default_rng(seed)
        self._windows: dict[int, list[StepWindow]] = {}

    @property
    def now(self) -> float:
        return 1_700_000_000.0 + self.row * ROW_S

    def say(
        self, own: Callable[[int, int], float] = lambda _rank, _row: 1.0, step_s: float = 1.5
    ) -> list[NodeRankReport]:
        """One more row, told by every node; `step_s` is that of all ranks, since they wait for each other."""
        heard = []
        for place, name in enumerate(self.names):
            ranks = []
            for rank in range(place * self.per_node, (place + 1) * self.per_node):
                seconds = own(rank, self.row) * float(np.exp(self.noise * self._draw.standard_normal()))
                window = StepWindow(self.row * STEPS, STEPS, STEPS, step_s, 0.3 * seconds, 0.7 * seconds, 0.2, 0.01)
                self._windows[rank] = [*self._windows.get(rank, []), window][-8:]
                ranks.append(self.rank(rank, tuple(self._windows[rank])))
            heard.append(NodeRankReport(name, ranks, self.now, self.now))
        self.row += 1
        return heard

    def rank(self, number: int, windows: tuple[StepWindow, ...] = ()) -> RankStatus:
        """A rank in its step."""
        world = len(self.names) * self.per_node
        return RankStatus(
            TRAIN.job, TRAIN.attempt, number, world, 1, self.row * STEPS, "step", self.now, gpu=f"GPU-{number}",
            windows=windows, pipeline_stage=number // self.per_node if self.stages else -1,
        )  # fmt: skip


class Watched:
    """A job's watch whose news are taken in as the pipeline would, so that they are known at the next look."""

    def __init__(self, own: Iterable[Finding] = ()) -> None:
        self.job = JobMonitor(TRAIN)
        self.findings = {finding.id: finding for finding in own}
        self.told: list[Finding] = []

    def look(self, heard: list[NodeRankReport], now: float, silent: tuple[str, ...] = ()) -> None:
        self.job.take(heard)
        judgements = self.job.judgements(KnownFindings(self.findings.values()), lambda node: node not in silent, now)
        news = [finding for judgement in judgements for finding in judgement()]
        self.told += news
        self.findings |= {finding.id: finding for finding in news}

    @property
    def stands(self) -> dict[str, Finding]:
        """What holds of the controller's own, by kind and node."""
        own = [f for f in self.findings.values() if f.active and f.origin.startswith("centre:")]
        return {f"{f.kind} {f.node}": f for f in own}


def own(node: str, kind: str, gpu: int | None = None, severity: Severity = Severity.WARNING) -> Finding:
    check, code = kind.split("/")
    about = Component(ComponentKind.HOST) if gpu is None else Component(ComponentKind.GPU, f"GPU-{gpu}")
    return Finding(
        id=finding_id(node, check, code, about, "b:1"), node=node, check=check, code=code, component=about,
        severity=severity, summary=kind, first_seen=0.0, last_seen=0.0, origin="b:1", level=True,
    )  # fmt: skip
