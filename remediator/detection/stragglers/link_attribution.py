"""Finds slow transfers ring by ring, and the link at fault from the rings that share it. Pure.

A ring is as slow as its slowest member, so its members all look alike: one slow ring blames nobody. Two slow rings
with one rank or one node in common do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from remediator.detection.stragglers.peer_comparison import PEERS_MIN, pair_codes, peer_groups
from remediator.detection.stragglers.robust_statistics import excess_over_others, known_median, nan_median
from remediator.detection.stragglers.slowdown_onset import find_global_slowdown, find_slow_interval
from remediator.detection.stragglers.step_trace import UNKNOWN, Bools, Floats, Ints, StepTrace, as_slice
from remediator.detection.stragglers.straggler_verdict import Culprit, SlowdownKind, StragglerVerdict, VerdictReason
from remediator.detection.stragglers.window_scan import EFFECT_MIN, scan_windows

RINGS_MIN = 2
CLEAREST = 8  # windows in which all rings are compared
MANY_RINGS = 0.75  # quantile of the rings: that many became slow at once, and are no minority that stands out
MOVED = 0.5  # of a rise: a ring that rose by less has a different problem
RISE_CLEAR = 6.0  # spreads: congestion comes and goes
AXES = {"dp_rank": ("pp_rank", "tp_rank"), "pp_rank": ("dp_rank", "tp_rank"), "tp_rank": ("dp_rank", "pp_rank")}


@dataclass(frozen=True)
class BlamedColumns:
    """The columns to blame, the number of slow rings, and how many of them these explain."""

    columns: tuple[int, ...]
    slow_rings: int
    explained: int


class _Axis(NamedTuple):
    """The rings of one axis: their columns, (S, G) least time of a member and end after the latest start, and stage.

    `order` has the columns ring by ring, and each ring's first place in it is in `starts`.
    """

    order: Ints
    starts: Ints
    takes: Floats
    until: Floats
    kind: Ints


class _SlowRings(NamedTuple):
    slow: Bools  # (G,)
    first: int
    last: int
    level: float


def communication_rings(trace: StepTrace) -> list[Ints]:
    """Return, per axis, (R,) the number of each rank's ring: ranks that differ in one coordinate only.

    Without coordinates, the whole job is one ring.
    """
    found = []
    for axis, fixed in AXES.items():
        if (trace.places[axis] == UNKNOWN).any() or np.unique(trace.places[axis]).size < 2:
            continue
        one, other = (np.unique(trace.places[name], return_inverse=True)[1] for name in fixed)
        _, number = np.unique(pair_codes(one, other), return_inverse=True)
        found.append(np.asarray(number, dtype=np.int64))
    return found or [np.zeros(trace.ranks.size, dtype=np.int64)]


def find_slow_links(trace: StepTrace, compute: Floats, usable: Bools) -> StragglerVerdict | None:
    """Return the rank or node that slow rings have in common, or a verdict that names none; None if none is slow.

    A ring's transfer time is its end less its latest start. Its last member waits for no other, so the least time of
    its members counts; and a ring that waits for slow computation elsewhere does not end later than that.
    """
    if "comm_s" not in trace.cells:
        return None
    comm = trace.cells["comm_s"]
    usual = known_median(compute) + known_median(comm)
    ended = (compute + comm - np.fmax.reduce(compute, axis=1, keepdims=True)) / usual
    stage = peer_groups(trace)
    axes: list[_Axis] = []
    for number in communication_rings(trace):
        order = np.argsort(number, kind="stable")
        starts = np.flatnonzero(np.diff(number[order], prepend=-1))
        takes, until = (_least_of_rings(values, order, starts) for values in (comm / usual, ended))
        kind = stage[order[starts]] if np.ptp(stage[number == number[0]]) == 0 else np.zeros_like(starts)
        axes.append(_Axis(order, starts, takes, until, kind))
    found = [_slow_rings(axis, usable, EFFECT_MIN) for axis in axes]
    if not any(found):
        return None
    found = [seen or _slow_rings(axis, usable, EFFECT_MIN / 2) for axis, seen in zip(axes, found, strict=True)]
    return _link_verdict(trace, usable, axes, found)


def _least_of_rings(values: Floats, order: Ints, starts: Ints) -> Floats:
    """Return (S, G) the least known value of each ring's members."""
    sizes = np.diff(starts, append=order.size)
    if np.ptp(sizes) == 0:  # usual; then one step per member, or per ring, takes a third of the time
        members = order.reshape(starts.size, -1)
        if members.shape[1] > members.shape[0]:
            return np.stack([np.fmin.reduce(values[:, as_slice(ring)], axis=1) for ring in members], axis=1)
        least = values[:, as_slice(members[:, 0])].copy()
        for each in members.T[1:]:
            np.fmin(least, values[:, as_slice(each)], out=least)
        return np.asarray(least)
    return np.asarray(np.fmin.reduceat(values[:, order], starts, axis=1))


def _slow_rings(axis: _Axis, usable: Bools, least: float) -> _SlowRings | None:
    return _rings_above_others(axis, usable, least) or _rings_that_rose(axis, usable, least)


def _rings_above_others(axis: _Axis, usable: Bools, least: float) -> _SlowRings | None:
    """Find rings that are slower than those of the same stage, or that rose while most others did not."""
    takes, until, kind = axis.takes, axis.until, axis.kind
    rows = np.flatnonzero(usable)
    early = rows[: max(5, rows.size // 4)]
    best: _SlowRings | None = None
    if takes.shape[1] < PEERS_MIN:
        return None
    risen = [values - nan_median(values[early], 0)[None, :] for values in (takes, until)]
    for (over, ends), group in (
        ([_above_peers(values, kind) for values in (takes, until)], kind),
        ([values - nan_median(values, 1)[:, None] for values in risen], np.zeros_like(kind)),
    ):
        suspects = sorted(scan_windows(over, usable, group, least).suspects, key=lambda each: -each.z)
        for each in suspects[:CLEAREST]:
            window = slice(each.first, each.last + 1)
            longer, later = (nan_median(values[window], 0) for values in (over, ends))
            slow = (longer >= MOVED * each.slow) & (later >= MOVED * longer)  # others with it need not stand out alone
            if slow[each.column] and (best is None or slow.sum() > best.slow.sum()):
                best = _SlowRings(slow, each.first, each.last, each.slow)
    return best


def _above_peers(values: Floats, group: Ints) -> Floats:
    beside = np.full_like(values, np.nan)
    for number in np.unique(group):
        columns = as_slice(np.flatnonzero(group == number))
        beside[:, columns] = excess_over_others(values[:, columns], PEERS_MIN)
    return beside


def _rings_that_rose(axis: _Axis, usable: Bools, least: float) -> _SlowRings | None:
    """Find rings that became slower together, too many to stand out, by their own past."""
    takes, until = axis.takes, axis.until
    known = np.sum(~np.isnan(takes), axis=1, keepdims=True)
    place = (MANY_RINGS * np.maximum(known - 1, 0)).astype(int)
    level = np.take_along_axis(np.sort(takes, axis=1), place, 1)[:, 0]  # NaN sorts last
    seen = find_global_slowdown(level, usable, least, RISE_CLEAR)
    if seen is None:
        return None
    before = usable & (np.arange(usable.size) < seen.first)
    rose = [nan_median(values[usable & seen.rows], 0) - nan_median(values[before], 0) for values in (takes, until)]
    slow = np.minimum(*rose) >= MOVED * seen.level
    rows = np.flatnonzero(seen.rows)
    return _SlowRings(slow, int(rows[0]), int(rows[-1]), seen.level) if slow.any() else None


def _link_verdict(
    trace: StepTrace, usable: Bools, axes: list[_Axis], found: list[_SlowRings | None]
) -> StragglerVerdict:
    axis, clearest = max(
        ((axis, seen) for axis, seen in zip(axes, found, strict=True) if seen), key=lambda pair: pair[1].level
    )
    series = nan_median(axis.takes[:, clearest.slow], 1)
    usual = float(nan_median(series[clearest.first : clearest.last + 1], 0))
    when = find_slow_interval(series, clearest.first, clearest.last, usual, usable, own_past=True)
    first, level = int(trace.steps[when.first]), round(max(when.level, clearest.level), 4)
    slow: list[Ints] = []
    others: list[Ints] = []
    for each, seen in zip(axes, found, strict=True):
        for place, ring in enumerate(np.split(each.order, each.starts[1:])):
            (slow if seen is not None and seen.slow[place] else others).append(ring)
    if not others:
        reason = VerdictReason("transfers_of_everyone_slower", level)
        return StragglerVerdict(SlowdownKind.LINK, (), first, 0.9, (reason,))
    blamed = blame_shared_unit(trace, slow, others)
    reasons = (
        VerdictReason("slow_groups", float(blamed.slow_rings)),
        VerdictReason("slow_groups_explained", float(blamed.explained)),
        VerdictReason("communicates_longer", level),
    )
    named = tuple(Culprit(int(trace.ranks[column]), trace.node_of(column), level) for column in blamed.columns)
    return StragglerVerdict(SlowdownKind.LINK, named, first, 0.9 if named else 0.45, reasons)


def blame_shared_unit(trace: StepTrace, slow: list[Ints], others: list[Ints]) -> BlamedColumns:
    """Return the only rank, or else the only node, that all slow rings pass through, and no two have in common but it.

    Args:
        trace: with the nodes of the ranks, if known.
        slow: columns of each slow ring,
        others: and of each other ring.

    A ring inside one node does not count if all of its members are in slow rings that leave the node.
    """
    node = trace.codes["node"]
    leaving = np.unique([column for ring in slow if np.ptp(node[ring]) > 0 for column in ring.tolist()])
    slow = [ring for ring in slow if np.ptp(node[ring]) > 0 or not np.isin(ring, leaving).all()]
    for unit in (np.arange(trace.ranks.size), node):
        counts = Counter(number for ring in slow for number in np.unique(unit[ring]).tolist())
        counts.pop(UNKNOWN, None)
        ranked = counts.most_common(2)
        if not ranked or ranked[0][1] < max(RINGS_MIN, len(slow)) or (len(ranked) > 1 and ranked[1][1] == ranked[0][1]):
            continue
        name, count = ranked[0]
        if sum(bool((unit[ring] == name).any()) for ring in others) > count:
            continue
        touched = np.unique(np.concatenate(slow))
        return BlamedColumns(tuple(touched[unit[touched] == name].tolist()), len(slow), count)
    return BlamedColumns((), len(slow), 0)
