"""Groups events into incidents of a node, and estimates the node's own share of the blame. Pure.

A lemon fails repeatedly by itself. What many nodes suffer at once, what follows one user or job, and the failure of a
job of a thousand nodes without a located fault say little about any single node.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from remediator.detection.lemons.failure_record import DAY_S, Flags, Floats, History, Ints, Kind, completed_repairs

INCIDENT_S = DAY_S  # one fault shows repeatedly until it is fixed
SAME_FAILURE_S = 600.0  # the nodes of a failed job are reported one after the other
BURST_S, BURST_NODES, RACK_BURST_NODES = 600.0, 4, 3
SPREE_S, SPREE_NODES = DAY_S / 2, 4  # to both sides: one user's or job's failures on many nodes
HABIT_NODES, HABIT_SHARE = 3, 0.1  # if so many of a user's nodes fail alike, the user is the cause
BIG_HABIT_SHARE = 0.5  # for a job, which may have many nodes: its failures must be where it is
HABIT_TIMES, HABIT_SIGMAS = 3.0, 2.0  # times the usual rate: only the excess over it is the node's own
SURPRISE_LOG = math.log(1e-4)  # required improbability of a burst by chance
BUSY_USER = 5.0  # times the median user: how much a user runs is unknown
NAMED_OF_MANY = 0.75  # one node of a job of many was named; the first to report is often the victim
APPLICATION_XIDS = (13, 31, 43, 45)
# Relative to a failure: the weight of an incident without one. Removals were decided; the others are hints.
WORTH = {
    Kind.FAILURE: 1.0,
    Kind.REMOVED: 1.0,
    Kind.TEST_FAILED: 0.5,
    Kind.XID: 0.5,
    Kind.TICKET: 0.25,
    Kind.EXCLUDED: 0.25,
}
COMMON_SHARE = 0.1  # of the accused nodes show it: a rarer kind is not what this record calls a failure
HARDWARE = (Kind.REMOVED, Kind.TEST_FAILED)


class AttributedIncidents(NamedTuple):
    """Equally long arrays: node, start, weight in failures, and the node's own share.

    `of_row` is the incident of each row of the history, -1 without one.
    """

    node: Ints
    time: Floats
    weight: Floats
    own: Floats
    of_row: Ints


def rows_against_node(history: History) -> Flags:
    """Return rows that count against a node at all."""
    by_jobs = (history.kind == Kind.XID) & np.isin(history.code, APPLICATION_XIDS)
    return np.asarray(history.of(*WORTH) & ~by_jobs, dtype=np.bool_)


def attribute_incidents(history: History) -> AttributedIncidents:
    """Group rows (sorted by node and time) into incidents of at most a day; a repair ends one."""
    rows = np.flatnonzero(rows_against_node(history))
    told = history.take(rows)
    life = _repair_generations(told.node, told.time, *completed_repairs(history))
    starts = _mark_window_starts(told.node * (int(life.max(initial=0)) + 1) + life, told.time)
    number = np.cumsum(starts) - 1
    worth = _failure_weights(told)
    shares, of_many = _job_blame_shares(told)
    blame = np.where(told.kind == Kind.FAILURE, shares, 1.0)
    many = int(starts.sum())
    weight, own = np.zeros(many), np.ones(many)
    np.maximum.at(weight, number, worth[told.kind] * blame)
    # What follows a burst (a removal, a ticket) belongs to the burst as well.
    np.minimum.at(own, number, _burst_shares(told, of_many))
    own *= _owner_shares(told, number, many, of_many)
    of_row = np.full(history.node.size, -1)
    of_row[rows] = number
    return AttributedIncidents(told.node[starts], told.time[starts], weight * own, own, of_row)


def _failure_weights(told: History) -> Floats:
    """Return weights by kind; in a record without failures, its heaviest kind counts as one."""
    worth = np.zeros(len(Kind))
    usual = []
    accused = np.unique(told.node).size
    for kind, value in WORTH.items():
        worth[kind] = value
        if np.unique(told.node[told.kind == kind]).size > COMMON_SHARE * accused:
            usual.append(value)
    return np.minimum(worth / max(usual, default=1.0), 1.0)


def _repair_generations(node: Ints, time: Floats, repaired: Ints, at: Floats) -> Ints:
    """Return how often the node had been repaired before."""
    found = np.zeros(node.size, dtype=np.int64)
    if repaired.size == 0:
        return found
    ranks = np.unique(np.concatenate([at, time]), return_inverse=True)[1]
    width = int(ranks.max()) + 2
    keys = np.sort(repaired * width + ranks[: at.size])
    asked = node * width + ranks[at.size :]
    before = np.searchsorted(keys, node * width)
    return np.searchsorted(keys, asked) - before


def _mark_window_starts(group: Ints, time: Floats, window_s: float = INCIDENT_S) -> Flags:
    """Mark the row that opens an incident; rows are sorted by group and time. All groups advance together."""
    starts = np.zeros(group.size, dtype=bool)
    if group.size == 0:
        return starts
    opens = np.r_[True, np.diff(group) != 0]
    current = np.flatnonzero(opens)
    ends = np.r_[current[1:], group.size]
    # Times within a group are made comparable over all groups, so that one search serves all.
    base = time - time.min()
    stride = float(base.max()) + 2 * window_s
    dense = np.cumsum(opens) - 1
    line = dense * stride + base
    while current.size:
        starts[current] = True
        following = np.searchsorted(line, line[current] + window_s, side="left")
        alive = following < ends
        current, ends = following[alive], ends[alive]
    return starts


def _job_blame_shares(told: History) -> tuple[Floats, Flags]:
    """Split a job's failure among its nodes, unless some of them show the broken hardware.

    Also return which rows were split.
    """
    share, of_many = np.ones(told.node.size), np.zeros(told.node.size, dtype=np.bool_)
    failures = np.flatnonzero((told.kind == Kind.FAILURE) & (told.job >= 0))
    alone = np.flatnonzero((told.kind == Kind.FAILURE) & (told.job < 0) & (told.size > 1))
    share[alone] = np.maximum(1.0 / told.size[alone], NAMED_OF_MANY)
    if failures.size == 0:
        return share, of_many
    order = failures[np.lexsort((told.time[failures], told.job[failures]))]
    job, time = told.job[order], told.time[order]
    group = np.cumsum(np.r_[True, (np.diff(job) != 0) | (np.diff(time) > SAME_FAILURE_S)]) - 1
    pairs = np.unique(np.column_stack([group, told.node[order]]), axis=0)
    listed = np.bincount(pairs[:, 0]).astype(np.float64)
    size = np.zeros(listed.size)
    np.maximum.at(size, group, np.nan_to_num(told.size[order], nan=1.0))
    anonymous = np.zeros(listed.size)
    np.maximum.at(anonymous, group, (~told.named[order]).astype(np.float64))
    size = np.maximum(size, listed)
    witnessed = _hardware_confirmed_failures(told)[order]
    by_witness = np.unique(np.column_stack([group[witnessed], told.node[order][witnessed]]), axis=0)
    witnesses = np.bincount(by_witness[:, 0], minlength=listed.size)
    plain = np.where((listed == 1) & (size > 1) & (anonymous == 0), np.maximum(1 / size, NAMED_OF_MANY), 1 / size)
    known = witnesses[group] > 0
    share[order] = np.where(
        known, np.where(witnessed, 1.0 / np.maximum(witnesses[group], 1), 0.1 * plain[group]), plain[group]
    )
    of_many[order] = listed[group] > 1
    return share, of_many


def _hardware_confirmed_failures(told: History) -> Flags:
    """Return failures for which this node showed a hardware fault within an hour."""
    evidence = told.of(*HARDWARE) | (told.kind == Kind.XID)
    ranks_of = np.flatnonzero(evidence)
    found = np.zeros(told.node.size, dtype=bool)
    if ranks_of.size == 0:
        return found
    origin = float(told.time.min())
    stride = float(told.time.max()) - origin + 4 * 3600.0
    line = told.node * stride + (told.time - origin)
    there = np.sort(line[ranks_of])
    return np.searchsorted(there, line + 3600.0, side="right") > np.searchsorted(there, line - 3600.0)


def _burst_shares(told: History, of_many: Flags) -> Floats:
    """Return one over the nodes hit at the same time, in the fleet or in the rack, if chance does not explain it.

    `of_many`: rows of one job's failure, whose coincidence is explained and whose blame is already shared.
    """
    share = _coincidence_shares(np.where(of_many, -1, 0), told, BURST_S, BURST_NODES, None)
    for name, least in (("rack", RACK_BURST_NODES), ("switch", RACK_BURST_NODES)):
        if name in told.cohorts:
            share = np.minimum(
                share,
                _coincidence_shares(np.where(of_many, -1, told.cohorts[name][told.node]), told, BURST_S, least, None),
            )
    return share


def _coincidence_shares(
    group: Ints, told: History, half_width_s: float, least: int, usual_per_s: Floats | None
) -> Floats:
    """Return shares of 1 over the number of nodes of a group hit within the window, if that is no chance.

    `usual_per_s`: by group, its usual rate; None: its rate outside the window.
    """
    share = np.ones(told.node.size)
    inside = np.flatnonzero(group >= 0)
    if inside.size < least:
        return share
    keys, times = group[inside], told.time[inside]
    span = max(float(told.time.max() - told.time.min()), 1.0)
    stride = span + 4 * half_width_s
    line = keys * stride + (times - told.time.min())
    # A node counts once in a window: its rows after the first are identified by node and time.
    order = np.lexsort((line, told.node[inside], keys))
    same = np.r_[False, (np.diff(keys[order]) == 0) & (np.diff(told.node[inside][order]) == 0)]
    repeats = same & (np.r_[np.inf, np.diff(line[order])] <= 2 * half_width_s)
    firsts = np.sort(line[order][~repeats])
    hit = np.searchsorted(firsts, line + half_width_s, side="right") - np.searchsorted(firsts, line - half_width_s)
    total = np.bincount(keys[order][~repeats], minlength=int(keys.max()) + 1)[keys]
    width = min(max(2 * half_width_s, _resolution_s(told.time)), span)
    expected = np.maximum(total - hit, 0.5) * width / max(span - width, width)
    if usual_per_s is not None:
        expected = np.maximum(expected, usual_per_s[keys] * width)
    ratio = np.maximum(hit / np.maximum(expected, 1e-12), 1.0)
    # Chernoff's bound on a Poisson tail.
    surprising = (hit >= least) & (hit - expected - hit * np.log(ratio) < SURPRISE_LOG)
    share[inside[surprising]] = 1.0 / hit[surprising]
    return share


def _resolution_s(times: Floats) -> float:
    """Return the time resolution: in a record of days or hours, nothing coincides more precisely than that."""
    return next((unit for unit in (DAY_S, 3600.0, 60.0) if bool((np.mod(times, unit) == 0).all())), 0.0)


def _owner_shares(told: History, number: Ints, many: int, of_many: Flags) -> Floats:
    """Return, per incident, the share that is the node's own and not that of its user or job."""
    weight = np.ones(many)
    failed = told.kind == Kind.FAILURE
    span = max(float(np.ptp(told.time)) if told.time.size else 0.0, DAY_S)
    for key in (told.user, told.job):
        # What one job's nodes suffer together does not count as a spree, but its user may cause it repeatedly.
        alone, known = failed & (key >= 0) & ~of_many, failed & (key >= 0) & ((key is told.user) | ~of_many)
        if not known.any():
            continue
        pairs = np.unique(np.column_stack([key[known], told.node[known], number[known]]), axis=0)
        keys = int(key.max()) + 1
        per_key = np.bincount(pairs[:, 0], minlength=keys)
        failing = per_key > 0
        size = np.zeros(keys)
        np.maximum.at(size, key[known], np.nan_to_num(told.size[known]))
        usual = np.maximum(BUSY_USER * float(np.median(per_key[failing])) / span, 0.0065 / DAY_S * size)
        shares = _coincidence_shares(np.where(alone, key, -1), told, SPREE_S, SPREE_NODES, usual)
        # With one or two users in total, the user's fault cannot be distinguished from the node's.
        if int(failing.sum()) > 2:
            small = (size > 0) & (size < 2 * SPREE_NODES) | (key is told.user)
            habits = _habitual_failure_share(
                pairs, np.where(known, key, -1), told, np.where(small, HABIT_SHARE, BIG_HABIT_SHARE)
            )
            shares = np.minimum(shares, habits)
        mine = np.ones(many)
        np.minimum.at(mine, number[known], shares[known])
        weight = np.minimum(weight, mine)
    return weight


def _habitual_failure_share(pairs: Ints, key: Ints, told: History, least: Floats) -> Floats:
    """Return each row's share: failures at the rate of the user's other nodes come from the user.

    Once may be the node's.

    Where that rate far exceeds the usual, only the node's excess over the user's other nodes is its own.

    Args:
        pairs: (key, node, incident), unique.
        key: of each row, -1 to skip it.
        told: the rows.
        least: by key, the share of its nodes that must fail alike.
    """
    unique, count = np.unique(pairs[:, :2], axis=0, return_counts=True)
    order = np.lexsort((count, unique[:, 0]))
    whose, sorted_count = unique[order, 0], count[order]
    width = int(count.max()) + 2
    line = whose * width + sorted_count
    # Of the same user's nodes: how many fail at least half as often as this one.
    from_half = np.searchsorted(line, unique[:, 0] * width + (count + 1) // 2, side="left")
    first = np.searchsorted(line, unique[:, 0] * width, side="left")
    last = np.searchsorted(line, unique[:, 0] * width + width - 1, side="left")
    alike, all_nodes = last - from_half, last - first
    usual = sorted_count[(first + last - 1) // 2].astype(np.float64)  # on the median of the user's nodes
    plain = float(np.median(np.unique(np.unique(pairs[:, 1:], axis=0)[:, 0], return_counts=True)[1]))
    excessive = usual >= np.maximum(HABIT_TIMES * plain, 2.0)
    big = least[unique[:, 0]] > HABIT_SHARE
    habit = (alike >= HABIT_NODES) & (alike >= least[unique[:, 0]] * all_nodes) & (excessive | ~big)
    beyond = np.maximum(count - usual - HABIT_SIGMAS * np.sqrt(usual), 0.0)
    share_of = np.where(habit, np.where(excessive, beyond, 1.0) / count, 1.0)
    nodes = told.nodes + 1
    keys = unique[:, 0] * nodes + unique[:, 1]
    wanted = key * nodes + told.node
    at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return np.where((key >= 0) & (keys[at] == wanted), share_of[at], 1.0)
