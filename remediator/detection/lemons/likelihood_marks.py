"""Evidence against a node besides counts, as likelihood ratios: how much more often a lemon shows it. Pure.

The values are conservative estimates from few publications. In a fleet where a mark is common it counts less, since a
mark cannot be shown by more than all lemons.
"""

from __future__ import annotations

import enum

import numpy as np

from remediator.detection.lemons.failure_record import DAY_S, Flags, Floats, History, Ints, Kind, completed_repairs
from remediator.detection.lemons.incident_attribution import APPLICATION_XIDS, AttributedIncidents
from remediator.detection.lemons.lemon_filter import HEALED_BY_REPAIR

HALF_LIFE_D = 14.0


class Mark(enum.IntEnum):
    """Columns of `compute_marks`."""

    TESTS_FAILED = 0
    XID_CODES = 1
    REMOVALS = 2
    TICKETS = 3
    EXCLUSIONS = 4
    SINGLE_NODE = 5


# Of the nodes that Meta's seven signals flagged, more than 85 % failed a test, and hardly one in twenty usual nodes
# does: 17, halved. The others are our estimates, below what any of them showed.
RATIO = {
    Mark.TESTS_FAILED: 8.0,
    Mark.XID_CODES: 2.0,  # per distinct code beyond those expected by chance
    Mark.REMOVALS: 2.0,
    Mark.TICKETS: 1.5,
    Mark.EXCLUSIONS: 2.0,  # per distinct user or job
    Mark.SINGLE_NODE: 1.5,
}
# How often a mark may count; later ones add half as much as the first.
TIMES_MAX = {
    Mark.TESTS_FAILED: 2.0, Mark.XID_CODES: 3.0, Mark.REMOVALS: 2.0, Mark.TICKETS: 2.0, Mark.EXCLUSIONS: 3.0,
    Mark.SINGLE_NODE: 2.0,
}  # fmt: skip
SEEN_MIN = 0.1  # decayed: less counts as not shown


def compute_marks(history: History, found: AttributedIncidents, as_of: float) -> Floats:
    """Return decayed numbers, nodes × marks: distinct codes and users, and for the others incidents that show it."""
    faded = np.exp2(-(as_of - history.time) / (HALF_LIFE_D * DAY_S)) * _repair_fading(history)
    faded = faded * np.where(found.of_row >= 0, np.append(found.own, 1.0)[found.of_row], 1.0)
    result = np.zeros((history.nodes, len(Mark)))
    for mark, kind in (
        (Mark.TESTS_FAILED, Kind.TEST_FAILED), (Mark.REMOVALS, Kind.REMOVED), (Mark.TICKETS, Kind.TICKET),
    ):  # fmt: skip
        result[:, mark] = _distinct_label_weights(history, faded, history.kind == kind, found.of_row)
    hardware = (history.kind == Kind.XID) & ~np.isin(history.code, APPLICATION_XIDS) & (history.code >= 0)
    result[:, Mark.XID_CODES] = _beyond_chance(history, faded, hardware, found.of_row)
    by_whom = np.where(history.user >= 0, history.user, np.where(history.job >= 0, -2 - history.job, -1))
    result[:, Mark.EXCLUSIONS] = _distinct_label_weights(history, faded, history.kind == Kind.EXCLUDED, by_whom)
    single = (history.kind == Kind.FAILURE) & (history.size == 1)
    result[:, Mark.SINGLE_NODE] = _distinct_label_weights(history, faded, single, found.of_row)
    return result


def log_ratio(shown: Floats, listed: int, failing: Floats) -> Floats:
    """Return the natural logarithm of all marks' combined ratio, one row each.

    Args:
        shown: nodes × marks.
        listed: how many nodes the fleet has.
        failing: weighted incidents of each node; a mark that most failing nodes have says nothing about them.
    """
    total = np.zeros(shown.shape[0])
    has = shown > SEEN_MIN
    failed = failing > 0
    for mark in Mark:
        common = has[:, mark].sum() / max(listed, 1)
        among = has[failed, mark].mean() if failed.any() else 0.0
        # One node cannot make its own mark common.
        spare = 1.0 / max(int(failed.sum()), 1)
        cap = np.where(failed, 1.0 / max(among - spare, 1e-9), 1.0 / max(common, 1e-9))
        ratio = np.clip(np.minimum(RATIO[mark], cap), 1.0, None)
        number = np.minimum(shown[:, mark], TIMES_MAX[mark])
        total += np.log(ratio) * (np.minimum(number, 1.0) + 0.5 * np.maximum(number - 1.0, 0.0))
    return total


def _repair_fading(history: History) -> Floats:
    """Discount what came before a repair by the share of repairs that succeed."""
    last = np.full(history.nodes, -np.inf)
    node, at = completed_repairs(history)
    np.maximum.at(last, node, at)
    return np.where(history.time <= last[history.node], 1 - HEALED_BY_REPAIR, 1.0)


def _freshest_labels(history: History, faded: Floats, which: Flags, label: Ints) -> tuple[Ints, Floats]:
    """Return (node, weight) of each distinct label of a node: its most recent row counts."""
    rows = np.flatnonzero(which)
    if rows.size == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    pairs, inverse = np.unique(np.column_stack([history.node[rows], label[rows]]), axis=0, return_inverse=True)
    best = np.zeros(len(pairs))
    np.maximum.at(best, np.asarray(inverse).reshape(-1), faded[rows])
    return pairs[:, 0], best


def _distinct_label_weights(history: History, faded: Floats, which: Flags, label: Ints) -> Floats:
    node, best = _freshest_labels(history, faded, which, label)
    return np.bincount(node, best, history.nodes).astype(np.float64)


def _beyond_chance(history: History, faded: Floats, which: Flags, incident: Ints) -> Floats:
    """Return distinct codes beyond what as many draws from the whole fleet's codes would give.

    A node with five failures shows several codes for that alone, and its number of failures is counted already.
    """
    rows = np.flatnonzero(which)
    if rows.size == 0:
        return np.zeros(history.nodes)
    shown = np.unique(np.column_stack([history.node[rows], incident[rows], history.code[rows]]), axis=0)
    share = np.unique(shown[:, 2], return_counts=True)[1] / len(shown)
    times = np.bincount(shown[:, 0], minlength=history.nodes)
    draws, of_node = np.unique(times, return_inverse=True)
    expected = (1.0 - (1.0 - share[None, :]) ** draws[:, None]).sum(axis=1)[of_node]
    node, best = _freshest_labels(history, faded, which, history.code)
    distinct = np.bincount(node, minlength=history.nodes)
    fresh = np.bincount(node, best, history.nodes) / np.maximum(distinct, 1)
    return np.asarray(np.maximum(distinct - expected, 0.0) * fresh, dtype=np.float64)
