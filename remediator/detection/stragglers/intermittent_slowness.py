"""Finds ranks that are slow in single steps, too rarely for any window and too often for chance. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remediator.detection.stragglers.robust_statistics import binomial_tail, robust_spread
from remediator.detection.stragglers.slowdown_onset import true_runs
from remediator.detection.stragglers.step_trace import UNKNOWN, Bools, Floats, Ints, StepTrace

SPIKE_MIN, SPIKE_SPREADS = 0.08, 8.0
STEPS_SHARE, STEPS_MIN = 0.1, 10
STEPS_SHARE_MAX = 0.5  # a rank slow in more steps is slow for long, which windows detect better
LOSS_MIN = 0.05  # of its total time: a smaller loss is ignored
SHARE_MIN = 0.8  # of the slow steps of all ranks
CHANCE = 1e-3
PERIODIC = 0.8  # of the pauses between slow steps are equally long


@dataclass(frozen=True)
class IntermittentRank:
    """One rank: its column, its slow rows (S,), the median slowness there, and the probability by chance."""

    column: int
    rows: Bools
    level: float
    chance: float


def find_slow_steps(values: Floats, usable: Bools) -> Bools:
    """Return (S, R): where a rank is so far above its peers that usual noise does not explain it."""
    past = np.where(usable[:, None], values, np.nan)
    wide = max(robust_spread(past), 1e-3) if np.isfinite(past).any() else np.inf
    return np.asarray(np.nan_to_num(past, nan=0.0) > max(SPIKE_MIN, SPIKE_SPREADS * wide))


def find_intermittent_ranks(trace: StepTrace, over: Floats, usable: Bools, group: Ints) -> list[IntermittentRank]:
    """Find ranks of one node, or one rank, that nearly all slow steps belong to.

    Args:
        trace: for the places of the ranks.
        over: (S, R) slowness or share of time above that of the peers, NaN for holes.
        usable: (S,) rows past warm-up.
        group: (R,) peers, negative without peers.

    Single steps at regular distances are a duty that the program gives this rank, and so is whatever the first and the
    last rank do: they log and save.
    """
    high = find_slow_steps(over, usable) & (group >= 0)[None, :]
    steps = int(usable.sum())
    hits = high.sum(axis=0)
    lost = np.where(high, over, 0.0).sum(axis=0) / max(steps, 1)
    often = (hits >= max(STEPS_MIN, STEPS_SHARE * steps)) & (hits <= STEPS_SHARE_MAX * steps)
    columns = np.flatnonzero(often & (lost >= LOSS_MIN))
    if not columns.size or hits[columns].sum() < SHARE_MIN * hits.sum() or not _share_one_node(trace, columns):
        return []
    if columns.size == 1 and (columns[0] in (0, trace.ranks.size - 1) or _is_periodic(high[usable, columns[0]])):
        return []
    others = np.setdiff1d(np.flatnonzero(group >= 0), columns)
    usual = (float(hits[others].sum()) + 0.5) / (others.size * steps + 1)
    found = [
        IntermittentRank(
            int(c), high[:, c], float(np.median(over[high[:, c], c])), binomial_tail(int(hits[c]), steps, usual)
        )
        for c in columns
    ]
    return [each for each in found if each.chance * hits.size <= CHANCE]


def _share_one_node(trace: StepTrace, columns: Ints) -> bool:
    nodes = np.unique(trace.codes["node"][columns])
    return columns.size == 1 or (nodes.size == 1 and nodes[0] != UNKNOWN)


def _is_periodic(slow: Bools) -> bool:
    """Return whether single steps are slow at equal distances."""
    found = true_runs(slow)
    pauses = np.diff([first for first, _ in found])
    alone = np.mean([first == last for first, last in found])
    return bool(alone >= PERIODIC and pauses.size and np.mean(pauses == np.median(pauses)) >= PERIODIC)
