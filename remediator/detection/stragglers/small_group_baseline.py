"""Compares one node among few with its own past, when it is too large a part of its peers for their median. Pure."""

from __future__ import annotations

import numpy as np

from remediator.detection.stragglers.peer_comparison import PEERS_MIN
from remediator.detection.stragglers.robust_statistics import nan_median
from remediator.detection.stragglers.slowdown_onset import find_global_slowdown
from remediator.detection.stragglers.step_trace import UNKNOWN, Bools, Floats, Ints, StepTrace
from remediator.detection.stragglers.straggler_verdict import Culprit, SlowdownKind, StragglerVerdict, VerdictReason

ROSE, STAYED = 0.7, 0.3  # of the difference that opened between the node and the others
RANKS_MIN = 2
PART_MIN = 0.25


def find_slow_small_group(trace: StepTrace, compute: Floats, group: Ints, usable: Bools) -> StragglerVerdict | None:
    """Return the node whose own time rose by a tenth while that of the others did not; None if there is none.

    Args:
        trace: what was reported, with nodes.
        compute: (S, R) own seconds.
        group: (R,) peers.
        usable: (S,) rows past warm-up.

    Two halves that always differed, or that both changed, blame no rank: it cannot be decided which is normal.
    """
    node = trace.codes["node"]
    log = np.log(compute)
    for number in np.unique(group[group >= 0]):
        peers = group == number
        if peers.sum() < PEERS_MIN:
            continue
        ranks = np.bincount(node[peers & (node != UNKNOWN)])
        for name in np.flatnonzero(ranks >= max(RANKS_MIN, PART_MIN * peers.sum())):  # at most four
            own, others = peers & (node == name), peers & (node != name)
            if others.sum() < RANKS_MIN:
                continue
            mine, theirs = nan_median(log[:, own], 1), nan_median(log[:, others], 1)
            seen = find_global_slowdown(mine - theirs, usable)
            if seen is None:
                continue
            after = usable & seen.rows
            before = usable & (np.arange(after.size) < seen.first)
            if not after.any() or not before.any():
                continue
            rose = float(np.nanmedian(mine[after]) - np.nanmedian(mine[before]))
            moved = float(np.nanmedian(theirs[after]) - np.nanmedian(theirs[before]))
            if rose < ROSE * seen.level or abs(moved) > STAYED * seen.level:
                continue
            slower = float(np.expm1(seen.level))
            named = (Culprit(int(rank), trace.names["node"][name], round(slower, 4)) for rank in trace.ranks[own])
            reasons = (
                VerdictReason("slower_than_the_others", round(slower, 4)),
                VerdictReason("ranks_of_the_node", float(own.sum())),
            )
            return StragglerVerdict(SlowdownKind.NODE, tuple(named), int(trace.steps[seen.first]), 0.8, reasons)
    return None
