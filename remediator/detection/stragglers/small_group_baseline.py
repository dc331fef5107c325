"""Compares a node with its own past, where it is too large a part of its peers, or all of them, for their median. Pure."""

from __future__ import annotations

import numpy as np

from remediator.detection.stragglers.peer_comparison import PEERS_MIN
from remediator.detection.stragglers.robust_statistics import nan_median
from remediator.detection.stragglers.slowdown_onset import SlowInterval, find_global_slowdown
from remediator.detection.stragglers.step_trace import UNKNOWN, Bools, Floats, Ints, StepTrace
from remediator.detection.stragglers.straggler_verdict import Culprit, SlowdownKind, StragglerVerdict, VerdictReason

ROSE, STAYED = 0.7, 0.3  # of the difference that opened between the node and the others
RISE_MIN, RISE_CLEAR = float(np.log(1.07)), 4.0
RANKS_MIN = 2
PART_MIN = 0.25
SURE, SURE_WITHOUT_PEERS = 0.8, 0.5


def find_slow_small_group(trace: StepTrace, compute: Floats, group: Ints, usable: Bools) -> StragglerVerdict | None:
    """Return the node whose own time rose while that of the others did not; None if there is none.

    Args:
        trace: what was reported, with nodes.
        compute: (S, R) own seconds.
        group: (R,) peers.
        usable: (S,) rows past warm-up.

    The others are its peers; for a node that is a whole stage, the rest of the job. Two halves that always differed, or
    that both changed, blame no rank: it cannot be decided which is normal.
    """
    node = trace.codes["node"]
    log = np.log(compute)
    for number in np.unique(group):
        peers = group == number
        ranks = np.bincount(node[peers & (node != UNKNOWN)])
        for name in np.flatnonzero(ranks >= max(1, PART_MIN * peers.sum())):  # at most four
            own = node == name
            others = peers & ~own
            if others.sum() < RANKS_MIN:
                others = ~own & (node != UNKNOWN)
            found = _rise_alone(log, own, others, usable) if others.sum() >= RANKS_MIN else None
            if found is None:
                continue
            slower = float(np.expm1(found.level))
            named = (Culprit(int(rank), trace.names["node"][name], round(slower, 4)) for rank in trace.ranks[own])
            alike = int((peers & ~own).sum())
            reasons = (
                VerdictReason("slower_than_the_others", round(slower, 4)),
                VerdictReason("ranks_of_the_node", float(own.sum())),
                VerdictReason("peers_on_other_nodes", float(alike)),
            )
            sure = SURE if alike >= PEERS_MIN else SURE_WITHOUT_PEERS
            return StragglerVerdict(SlowdownKind.NODE, tuple(named), int(trace.steps[found.first]), sure, reasons)
    return None


def _rise_alone(log: Floats, own: Bools, others: Bools, usable: Bools) -> SlowInterval | None:
    """Return when the ranks `own` became slower, if the others stayed as they were."""
    usual = nan_median(log[usable], 0)[None, :]
    mine, theirs = (nan_median((log - usual)[:, ranks], 1) for ranks in (own, others))
    seen = find_global_slowdown(mine - theirs, usable, RISE_MIN, RISE_CLEAR)
    if seen is None:
        return None
    after, before = usable & seen.rows, usable & (np.arange(usable.size) < seen.first)
    if not after.any() or not before.any():
        return None
    rose, moved = (float(np.nanmedian(each[after]) - np.nanmedian(each[before])) for each in (mine, theirs))
    return seen if rose >= ROSE * seen.level and abs(moved) <= STAYED * seen.level else None
