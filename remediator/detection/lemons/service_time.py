"""A fleet's incidents and its time in service (node-days), by node and day. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remediator.detection.lemons.failure_record import (
    DAY_S,
    Floats,
    History,
    Kind,
    bin_edges,
    completed_repairs,
    covered_days,
    out_of_service,
)
from remediator.detection.lemons.fault_episodes import days_since_return, relapse_rate, unhelpful_repair_share
from remediator.detection.lemons.incident_attribution import AttributedIncidents
from remediator.detection.lemons.lemon_filter import FAILED, IncidentCounts

SIGMAS = 2.0  # a day or a group of nodes is worse only beyond chance
GROUP_PRIOR = 3.0  # failures that a group must outweigh to be worse than the fleet
GROUP_MIN, GROUP_SHARE_MAX = 4, 0.6
WORSE_MAX, BETTER_MIN = 50.0, 0.3


class FleetExposure(NamedTuple):
    """The filter's input, in units of a usual failure; by node: weighted incidents, days in service."""

    counts: IncidentCounts
    unit: float
    blame: Floats
    service_d: Floats


def compute_fleet_exposure(
    known: History, found: AttributedIncidents, as_of: float, fleet_nodes: int | None
) -> FleetExposure:
    """Convert a record cut at `as_of` (UTC seconds) to counts; `fleet_nodes` as in `lemons.judge_lemons`."""
    edges = bin_edges(float(known.time.min()) if known.node.size else as_of, as_of)
    days = np.diff(edges) / DAY_S
    service = _service_days(known, as_of, edges)
    since_d = days_since_return(known, found)
    relapse = relapse_rate(since_d, unhelpful_repair_share(found, since_d, as_of))
    seen, mended, repeats, excited = _bin_incidents(known, found, relapse, edges)
    worse = _bin_excess(seen, service) * _group_excess(known, seen, service)[:, None]
    quiet, calm = (
        np.median(each, axis=0) if known.nodes else once for each, once in ((service, days), (worse, days * 0 + 1))
    )
    # If every failure is half due to something else, there are as many failures, each with half the weight.
    plain = found.weight[found.weight >= FAILED]
    unit = float(plain.mean()) if plain.size else 1.0
    none = np.zeros(seen.shape[1])
    # The last bin has no width: it holds what came after a repair of the last day.
    counts = IncidentCounts(
        np.vstack([seen - repeats, none]) / unit,
        np.vstack([repeats, none]) / unit,
        np.vstack([excited, none]),
        _append_empty_bin(np.vstack([service * worse, quiet * calm])),
        np.vstack([mended, none]),
        np.append(days, 0.0),
        _unseen_node_count(known, fleet_nodes),
    )
    return FleetExposure(counts, unit, seen.sum(axis=1), service.sum(axis=1))


def _append_empty_bin(bins: Floats) -> Floats:
    return np.hstack([bins, np.zeros((bins.shape[0], 1))])


def _service_days(known: History, as_of: float, edges: Floats) -> Floats:
    """Return node-days per bin in which a node could fail: as recorded, otherwise whenever it was not out."""
    told = known.take(known.of(Kind.IN_SERVICE))
    ends = np.where(np.isfinite(told.end), told.end, as_of)
    lasting = ends > told.time
    # Jobs without a recorded end do not all still run: such rows show only that the node existed.
    endless = not np.isfinite(told.end).any() and told.node.size > np.unique(told.node).size
    if endless or not lasting.any():
        return np.diff(edges) / DAY_S - covered_days(known.nodes, out_of_service(known, as_of), edges)
    spans = covered_days(known.nodes, (told.node[lasting], told.time[lasting], ends[lasting]), edges)
    untold = spans.sum(axis=1) == 0
    if untold.any() and not untold.all():
        spans[untold] = np.median(spans[~untold], axis=0)
    return spans


def _bin_incidents(
    known: History, found: AttributedIncidents, relapse: Floats, edges: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return (weighted incidents, completed repairs, repeats of a fault, their rate of relapse), nodes × (bins + 1).

    An incident after a repair in its bin moves one bin on.
    """
    bins = edges.size
    node, done = completed_repairs(known)
    node, done = node[done >= edges[0]], done[done >= edges[0]]
    late = found.time >= edges[0]
    whose, when, weight, relapse = found.node[late], found.time[late], found.weight[late], relapse[late]
    at = np.clip(np.searchsorted(edges, done, side="left") - 1, 0, bins - 2)
    mended = np.zeros((known.nodes, bins))
    np.add.at(mended, (node, at), 1.0)
    first_done = np.full((known.nodes, bins), np.inf)
    np.minimum.at(first_done, (node, at), done)
    where = np.clip(np.searchsorted(edges, when, side="left") - 1, 0, bins - 2)
    where += when > first_done[whose, where]
    seen = np.zeros((known.nodes, bins))
    np.add.at(seen, (whose, where), weight)
    repeats, excited = np.zeros_like(seen), np.zeros_like(seen)
    np.add.at(repeats, (whose, where), np.where(relapse > 0, weight, 0.0))
    np.add.at(excited, (whose, where), relapse * weight)
    return seen, mended, repeats, excited / np.maximum(repeats, 1e-12)


def _unseen_node_count(known: History, fleet_nodes: int | None) -> float:
    """Return the number of unlisted nodes without events; NaN where only the failures can show it."""
    if fleet_nodes is not None:
        return float(max(fleet_nodes - known.nodes, 0))
    return 0.0 if known.of(Kind.IN_SERVICE).any() or known.nodes == 0 else float("nan")


def _bin_excess(seen: Floats, service: Floats) -> Floats:
    """Return how much worse than usual each bin was for all nodes: a rollout, a heat wave. 1 × bins."""
    if seen.shape[0] == 0:
        return np.ones((1, service.shape[1]))
    days = service.sum(axis=0)
    # A node counts once a bin, so that one lemon makes no bad day.
    hits = np.minimum(seen[:, :-1], 1.0).sum(axis=0)
    return _shrunk_excess_ratio(hits, days * hits.sum() / max(days.sum(), 1e-9))[None, :]


def _group_excess(known: History, seen: Floats, service: Floats) -> Floats:
    """Return how much worse each node's rack, batch or driver is than the fleet; the worst of them counts."""
    worse = np.ones(known.nodes)
    hits = np.minimum(seen.sum(axis=1), 3.0)
    days = service.sum(axis=1)
    rate = hits.sum() / max(days.sum(), 1e-9)
    for group in known.cohorts.values():
        member = np.flatnonzero(group >= 0)
        if member.size == 0:
            continue
        ids = group[member]
        size, failed = np.bincount(ids), np.bincount(ids, hits[member])
        worst = np.zeros(size.size)
        np.maximum.at(worst, ids, hits[member])
        # Without its worst node: one lemon makes no bad rack.
        expected = rate * np.bincount(ids, days[member]) * (size - 1) / np.maximum(size, 1)
        offset = np.maximum(_shrunk_excess_ratio(failed - worst, expected), 1.0)
        offset[(size < GROUP_MIN) | (size > GROUP_SHARE_MAX * known.nodes)] = 1.0
        worse[member] = np.maximum(worse[member], offset[ids])
    return worse


def _shrunk_excess_ratio(hits: Floats, expected: Floats) -> Floats:
    """Return observed over expected, shrunk towards 1 for chance and by a prior."""
    excess = hits - expected
    excess = np.sign(excess) * np.maximum(np.abs(excess) - SIGMAS * np.sqrt(expected), 0.0)
    return np.asarray(
        np.clip((expected + excess + GROUP_PRIOR) / (expected + GROUP_PRIOR), BETTER_MIN, WORSE_MAX), dtype=np.float64
    )
