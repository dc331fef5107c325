"""Compares a node with its own past, where it is too large a part of its peers, or all of them, for their median. Pure."""

from __future__ import annotations

import numpy as np

from remediator.detection.stragglers.peer_comparison import PEERS_MIN
from remediator.detection.stragglers.robust_statistics import nan_median, step_noise
from remediator.detection.stragglers.slowdown_onset import find_global_slowdown
from remediator.detection.stragglers.step_trace import UNKNOWN, Bools, Floats, Ints, StepTrace
from remediator.detection.stragglers.straggler_verdict import Culprit, SlowdownKind, StragglerVerdict, VerdictReason

ROSE, STAYED = 0.7, 0.3  # of the difference that opened between the node and the others
RISE_MIN, RISE_CLEAR = float(np.log(1.07)), 4.0
RANKS_MIN, OTHERS_ENOUGH = 2, 200
PART_MIN = 0.25
MEDIAN_ERRORS = 2.5  # standard errors of a median
SURE, SURE_WITHOUT_PEERS = 0.8, 0.5


def find_slow_small_group(
    trace: StepTrace, compute: Floats, group: Ints, usable: Bools, past: Floats | None = None
) -> StragglerVerdict | None:
    """Return the node whose own time rose while that of the others did not; None if there is none.

    Args:
        trace: what was reported, with nodes.
        compute: (S, R) own seconds.
        group: (R,) peers.
        usable: (S,) rows past warm-up.
        past: (R,) own seconds in an earlier trace, NaN if unknown.

    The others are its peers; for a node that is a whole stage, the rest of the job. Two halves that always differed, or
    that both changed, blame no rank: it cannot be decided which is normal.
    """
    node = trace.codes["node"]
    log = np.log(compute)
    log -= nan_median(log[usable], 0)[None, :]
    for number in np.unique(group):
        peers = group == number
        ranks = np.bincount(node[peers & (node != UNKNOWN)])
        for name in np.flatnonzero(ranks >= max(1, PART_MIN * peers.sum())):  # at most four
            own = node == name
            alike = int((peers & ~own).sum())
            others = np.flatnonzero((peers if alike >= RANKS_MIN else node != UNKNOWN) & ~own)
            if others.size < RANKS_MIN or (alike and ranks[name] < RANKS_MIN):
                continue
            others = others[:: max(1, others.size // OTHERS_ENOUGH)]
            found = _rise_alone(log, own, others, usable)
            if found is None and past is not None:
                found = _rise_over_past(np.log(compute / past), own, others, usable)
            if found is None:
                continue
            slower = float(np.expm1(found[1]))
            named = (Culprit(int(rank), trace.names["node"][name], round(slower, 4)) for rank in trace.ranks[own])
            reasons = (
                VerdictReason("slower_than_the_others", round(slower, 4)),
                VerdictReason("ranks_of_the_node", float(own.sum())),
                VerdictReason("peers_on_other_nodes", float(alike)),
            )
            sure = SURE if alike >= PEERS_MIN else SURE_WITHOUT_PEERS
            return StragglerVerdict(SlowdownKind.NODE, tuple(named), int(trace.steps[found[0]]), sure, reasons)
    return None


def _rise_alone(log: Floats, own: Bools, others: Ints, usable: Bools) -> tuple[int, float] | None:
    """Return the row from which the ranks `own` were slower, and by how much, if the others stayed as they were."""
    mine, theirs = (nan_median(log[:, ranks], 1) for ranks in (own, others))
    seen = find_global_slowdown(mine - theirs, usable, RISE_MIN, RISE_CLEAR)
    if seen is None:
        return None
    after, before = usable & seen.rows, usable & (np.arange(usable.size) < seen.first)
    if not after.any() or not before.any():
        return None
    rose, moved = (float(np.nanmedian(each[after]) - np.nanmedian(each[before])) for each in (mine, theirs))
    unsure = MEDIAN_ERRORS * step_noise(theirs) * np.sqrt(1 / after.sum() + 1 / before.sum())  # unequal sequences
    alone = rose >= ROSE * seen.level - unsure and abs(moved) <= STAYED * seen.level + unsure
    return (seen.first, seen.level) if alone else None


def _rise_over_past(over: Floats, own: Bools, others: Ints, usable: Bools) -> tuple[int, float] | None:
    """Return the same if they were slower than in the past all the time; `over` is (S, R) log own time over the past one."""
    mine, theirs = (nan_median(over[usable][:, ranks], 1) for ranks in (own, others))
    level, noise = nan_median(mine - theirs, 0), step_noise(mine - theirs)
    rose, moved = nan_median(mine, 0), nan_median(theirs, 0)
    clear = level > max(RISE_MIN, RISE_CLEAR * noise) and rose >= ROSE * level and abs(moved) <= STAYED * level
    return (int(np.flatnonzero(usable)[0]), float(level)) if clear else None
