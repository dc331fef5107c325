"""Ranks of one place that are slow in some steps again and again, too seldom for any window and too often for chance. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remediator.detection.stragglers.robust_statistics import binomial_tail, robust_spread
from remediator.detection.stragglers.slowdown_onset import true_runs
from remediator.detection.stragglers.step_trace import UNKNOWN, Bools, Floats, Ints, StepTrace

SPIKE_MIN, SPIKE_SPREADS = 0.08, 8.0
STEPS_SHARE, STEPS_MIN = 0.1, 10
STEPS_SHARE_MAX = 0.5  # who is slow in more of them is slow for long, and windows tell that better
LOSS_MIN = 0.05  # of all its time: what is less slow on the whole is not worth a name
THEIRS = 0.8  # of all slow steps of everybody
CHANCE = 1e-3
PERIODIC = 0.8  # of the pauses between slow steps are equally long


@dataclass(frozen=True)
class IntermittentRank:
    """One rank: its column, (S,) the rows at which it was slow, the median slowness there, and the chance of that."""

    column: int
    rows: Bools
    level: float
    chance: float


def find_slow_steps(values: Floats, usable: Bools) -> Bools:
    """(S, R) where a rank lies so far above its peers that usual noise does not reach it."""
    past = np.where(usable[:, None], values, np.nan)
    wide = max(robust_spread(past), 1e-3) if np.isfinite(past).any() else np.inf
    return np.asarray(np.nan_to_num(past, nan=0.0) > max(SPIKE_MIN, SPIKE_SPREADS * wide))


def find_intermittent_ranks(trace: StepTrace, over: Floats, usable: Bools, group: Ints) -> list[IntermittentRank]:
    """Ranks of one node, or one rank, that nearly all slow steps belong to.

    Args:
        trace: for the places of the ranks.
        over: (S, R) slowness or share of time above that of the peers, NaN for holes.
        usable: (S,) rows past warm-up.
        group: (R,) peers, negative where there are none.

    Single steps at regular distances are a duty that the program has given to that rank, and so is whatever the first and
    the last rank do: they log and save.
    """
    high = find_slow_steps(over, usable) & (group >= 0)[None, :]
    steps = int(usable.sum())
    hits = high.sum(axis=0)
    lost = np.where(high, over, 0.0).sum(axis=0) / max(steps, 1)
    often = (hits >= max(STEPS_MIN, STEPS_SHARE * steps)) & (hits <= STEPS_SHARE_MAX * steps)
    columns = np.flatnonzero(often & (lost >= LOSS_MIN))
    if not columns.size or hits[columns].sum() < THEIRS * hits.sum() or not _share_one_node(trace, columns):
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
    """Whether single steps are slow, equally far from each other."""
    found = true_runs(slow)
    pauses = np.diff([first for first, _ in found])
    alone = np.mean([first == last for first, last in found])
    return bool(alone >= PERIODIC and pauses.size and np.mean(pauses == np.median(pauses)) >= PERIODIC)
