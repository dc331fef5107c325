"""Watches whether a job became slower when heat began to hold down the clocks of exactly one of its GPUs. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from remediator.detection.stragglers.heat_slowdown import (
    AFTER_S,
    LASTS_S,
    LEAD_S,
    HeatOnset,
    PaceSample,
    blame_hot_rank,
    current_rise,
    find_heat_onset,
)
from remediator.detection.stragglers.straggler_verdict import StragglerVerdict
from remediator.monitoring.heartbeat_table import MEASURED_MAX, HeartbeatTable
from remediator.monitoring.step_windows import NodeRankReport, StepWindowMatrix
from vocabulary.finding import Finding
from vocabulary.identity import ComponentKind

HELD_BY_HEAT = ("throttle/hw_thermal", "throttle/sw_thermal", "throttle/thermal_time", "clocks/held_by_heat")
SAMPLES = 512  # at most one per pass of two seconds: a quarter of an hour
DECIDED_S = AFTER_S + 60.0  # after the heat began; later the steps before it are no longer known
ROWS_MIN = 3  # of own times, on each side
# Evidence, from which another leader continues.
HOT_SINCE, USUAL, OWN_AGREES = "hot_since", "usual_step_s", "own_time_agrees"


class HeatSuspect(NamedTuple):
    """The hot GPU (UUID) that a job waits for, the verdict on its rank, and when and how the job became slower."""

    gpu: str
    verdict: StragglerVerdict
    onset: HeatOnset
    heard_at: float

    @property
    def rank(self) -> int:
        """The rank on the hot GPU."""
        return self.verdict.culprits[0].rank


class HeatWatch:
    """The recent step times of one job, and the onsets found so far by heat finding."""

    def __init__(self) -> None:
        self._samples: deque[PaceSample] = deque(maxlen=SAMPLES)
        self._onsets: dict[str, HeatOnset] = {}

    def take(self, heard: Iterable[NodeRankReport], row: int, heartbeats: HeartbeatTable | None = None) -> None:
        """Take in the nodes' reports and heartbeats; `row` is the newest complete row of windows."""
        steps = [] if heartbeats is None else heartbeats.newest_step_times()
        at = heartbeats.at if heartbeats is not None and steps else 0.0
        for word in heard:
            newest = next((rank.windows[-1] for rank in word.ranks if rank.alive and rank.windows), None)
            if newest is not None and 0 < newest.step_s < MEASURED_MAX:
                steps.append(newest.step_s)
                at = max(at, word.at)
        if steps and (not self._samples or at >= self._samples[-1].at):
            self._samples.append(PaceSample(at, median(steps), row))

    def is_recent(self, now: float) -> bool:
        """Return whether the job's step times are known up to now (UTC s)."""
        return bool(self._samples) and now - self._samples[-1].at < LASTS_S

    def find_suspect(
        self, rows: StepWindowMatrix, hot: Mapping[str, Sequence[Finding]], before: Collection[Finding], now: float
    ) -> HeatSuspect | None:
        """Return the GPU that the job waits for; None unless exactly one GPU on its nodes is held down by heat.

        Args:
            rows: the job's placement and windows.
            hot: by node, its active heat findings.
            before: earlier conclusions about the job, perhaps of another leader.
            now: UTC seconds.
        """
        if not hot or not self._samples:
            return None
        nodes = {seat.node for seat in rows.seats.values()}
        found = [each for node in nodes & hot.keys() for each in hot[node]]
        if len({(each.node, each.component.name) for each in found}) != 1:
            return None
        first = min(found, key=lambda each: each.first_seen)
        node, gpu = first.node, first.component.name
        ranks = [rank for rank, seat in rows.seats.items() if seat.node == node and seat.gpu in ("", gpu)]
        if not ranks:
            return None  # another job's GPU
        samples = list(self._samples)
        verdict = None
        onset = self._onsets.get(first.id) or _earlier_onset(before, node, gpu, first.first_seen)
        if onset is None and now <= first.first_seen + DECIDED_S:
            onset = find_heat_onset(samples, first.first_seen)
            if onset is None:
                return None
            own = _own_rises(rows, samples, ranks, onset.at)
            verdict = None if own is None else blame_hot_rank(min(ranks), node, onset.rise, *own)
            if own is None or verdict is None:
                return None
            onset = onset._replace(own_agrees=own[0] is not None)
        elif onset is not None:
            rise = current_rise(samples, onset, now)
            verdict = None if rise is None else blame_hot_rank(min(ranks), node, rise, None, None)
        if onset is None or verdict is None:
            return None
        self._onsets = {first.id: onset}
        return HeatSuspect(gpu, verdict, onset, samples[-1].at)


def index_hot_gpus(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Return, by node, the active findings of GPUs that heat holds down."""
    hot: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.active and finding.kind in HELD_BY_HEAT and finding.component.kind is ComponentKind.GPU:
            hot.setdefault(finding.node, []).append(finding)
    return hot


def _earlier_onset(before: Collection[Finding], node: str, gpu: str, hot_since: float) -> HeatOnset | None:
    for each in before:
        usual, since = each.evidence.get(USUAL), each.evidence.get(HOT_SINCE)
        same = each.active and (each.node, each.component.name) == (node, gpu)
        if same and isinstance(usual, int | float) and usual > 0 and since == round(hot_since):
            return HeatOnset(hot_since, float(usual), 0.0, each.evidence.get(OWN_AGREES) is True)
    return None


def _own_rises(
    rows: StepWindowMatrix, samples: Sequence[PaceSample], ranks: Sequence[int], hot_since: float
) -> tuple[float | None, float | None] | None:
    """Return by how much the own time of the GPU's ranks, and that of the other nodes' ranks, rose with the heat.

    A time that is not measured is None; all is None while there are too few rows to tell. Where the ranks do not tell
    their GPUs, all of the node are given, and the one that rose most counts.
    """
    trace = rows.trace(rows.oldest, rows.frontier + 1)
    compute, own = trace.compute(), np.isin(trace.ranks, ranks)
    if compute is None or not np.isfinite(compute[:, own]).any():
        return None, None
    last = max((each.row for each in samples if each.at <= hot_since - LEAD_S), default=-1)
    first = next((each.row for each in samples if each.at >= hot_since), rows.frontier)
    number = trace.steps // max(rows.grid, 1)
    early, late = compute[number <= last], compute[number > first]
    if min(np.isfinite(part[:, own]).sum(axis=0).max(initial=0) for part in (early, late)) < ROWS_MIN:
        return None
    with np.errstate(all="ignore"):
        rises = np.nanmedian(late, axis=0) / np.nanmedian(early, axis=0) - 1
    node = rows.seats[ranks[0]].node
    others = np.array([rows.seats[int(each)].node != node for each in trace.ranks]) & np.isfinite(rises)
    return float(np.nanmax(rises[own])), float(np.median(rises[others])) if others.any() else None
