"""Compares nodes as wholes: the mean of a node's ranks varies less than any of them, so it shows less slowness. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from remediator.detection.stragglers.peer_comparison import PEERS_MIN, PeerComparison
from remediator.detection.stragglers.robust_statistics import (
    critical_spreads,
    excess_over_others,
    nan_median,
    robust_spread,
    step_noise,
)
from remediator.detection.stragglers.slowdown_onset import SlowInterval, find_slow_interval
from remediator.detection.stragglers.step_trace import UNKNOWN, Bools, Floats, Ints, StepTrace
from remediator.detection.stragglers.window_scan import CHANCE, SPREAD_FLOOR, SlowSuspectWindow, scan_windows

RANKS_MIN = 2
MANY_NODES, FEW_NODES_FLOOR = 8, 0.008  # few may be alike by chance
RANKS_SLOW, AS_SLOW = 0.75, 0.5  # so many of its ranks are at least half as slow as the node: not one rank alone
UNDECIDED_MIN, UNDECIDED_NOISE = 0.04, 7.0  # the others' median is as noisy


@dataclass(frozen=True)
class NodeMeans:
    """The ranks of one node and one peer group as one unit.

    Attributes:
        members: the columns of each unit.
        group: (N,) their peer group.
        slow: (S, N) mean log slowness over that of the other units of the group; NaN for a single unit.
    """

    members: list[Ints]
    group: Ints
    slow: Floats


class SlowNode(NamedTuple):
    """Columns of its ranks, the window in which it is slow, and when it was slow."""

    columns: Ints
    window: SlowSuspectWindow
    when: SlowInterval


class UndecidedNode(NamedTuple):
    """A node that was always slower than the others, by `slower` (log), though not beyond doubt; `column`: its first rank."""

    column: int
    slower: float


def node_means(trace: StepTrace, compared: PeerComparison) -> NodeMeans:
    """Return the means of every node with two or more ranks among the same peers."""
    node = trace.codes["node"]
    known = np.flatnonzero((compared.group >= 0) & (node != UNKNOWN))
    order = known[np.lexsort((node[known], compared.group[known]))]
    starts = np.flatnonzero((np.diff(node[order], prepend=-2) != 0) | (np.diff(compared.group[order], prepend=-2) != 0))
    sizes = np.diff(starts, append=order.size)
    several = sizes >= RANKS_MIN
    members = [
        order[start : start + size]
        for start, size in zip(starts[several].tolist(), sizes[several].tolist(), strict=True)
    ]
    if not members:
        return NodeMeans([], np.zeros(0, dtype=np.int64), np.zeros((trace.steps.size, 0)))
    taken, begins = np.concatenate(members), np.cumsum([0, *(each.size for each in members[:-1])])
    group = compared.group[taken[begins]]
    slow = _unit_means(compared.slow[:, taken], begins)
    for number in np.unique(group):
        units = np.flatnonzero(group == number)
        slow[:, units] = excess_over_others(slow[:, units], 2) if units.size > 1 else np.nan
    return NodeMeans(members, group, slow)


def _unit_means(values: Floats, begins: Ints) -> Floats:
    """Return (S, N) means of consecutive columns; NaN where fewer than half are known."""
    known = np.add.reduceat(np.isfinite(values), begins, axis=1, dtype=np.float64)
    sizes = np.diff([*begins, values.shape[1]])
    return np.where(2 * known >= sizes, np.add.reduceat(np.nan_to_num(values), begins, axis=1) / known, np.nan)


def find_slow_nodes(compared: PeerComparison, nodes: NodeMeans, usable: Bools) -> list[SlowNode]:
    """Return the nodes of which most ranks are slow, against at least three other nodes with the same peers.

    Args:
        compared: slowness of the ranks.
        nodes: means of the same.
        usable: (S,) rows past warm-up.
    """
    _, number, size = np.unique(nodes.group, return_inverse=True, return_counts=True)
    enough = np.where(size[number] >= PEERS_MIN, nodes.group, -1)
    found = []
    for window in scan_windows(nodes.slow, usable, enough).suspects:
        columns = nodes.members[window.column]
        level = nan_median(compared.slow[window.first : window.last + 1][:, columns], 0)
        if np.mean(level >= AS_SLOW * window.slow) < RANKS_SLOW or not _stands_out(nodes, window, usable):
            continue
        series = nodes.slow[:, window.column]
        when = find_slow_interval(series, window.first, window.last, window.slow, usable, own_past=window.own_past)
        found.append(SlowNode(columns, window, when))
    return found


def _stands_out(nodes: NodeMeans, window: SlowSuspectWindow, usable: Bools) -> bool:
    """Return whether a node is slower, or became so, by far more than the others differ: nodes are not equally fast."""
    units = np.flatnonzero(nodes.group == nodes.group[window.column])
    rows = np.arange(usable.size)
    level, before = (
        nan_median(nodes.slow[usable & part][:, units], 0)
        for part in ((rows >= window.first) & (rows <= window.last), rows < window.first)
    )
    own = units == window.column
    needed = critical_spreads(CHANCE, units.size, units.size)
    for values in (level, level - before):
        others = values[~own & np.isfinite(values)]
        if others.size < PEERS_MIN - 1:
            continue
        many = others.size >= MANY_NODES
        spread = max(robust_spread(others), SPREAD_FLOOR) if many else max(others.std(ddof=1), FEW_NODES_FLOOR)
        if values[own][0] - np.median(others) >= needed * spread:
            return True
    return False


def find_undecided_node(compared: PeerComparison, nodes: NodeMeans, usable: Bools) -> UndecidedNode | None:
    """Return the node that is slowest all the time, if by more than its noise: a cause elsewhere must not excuse it.

    Its noise is that of its mean together with the load that the stages of a pipeline share.
    """
    level = nan_median(nodes.slow[usable], 0)
    if not np.isfinite(level).any():
        return None
    slowest = int(np.nanargmax(level))
    members = nodes.members[slowest]
    common = compared.common[:, members] if compared.shared else 0.0
    whole = _unit_means(compared.slow[:, members] + common, np.zeros(1, dtype=np.int64))[:, 0]
    sure = UNDECIDED_NOISE * step_noise(whole) / np.sqrt(usable.sum())
    if not level[slowest] >= max(UNDECIDED_MIN, sure):
        return None
    return UndecidedNode(int(nodes.members[slowest][0]), float(level[slowest]))
