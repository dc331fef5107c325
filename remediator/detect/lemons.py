"""Lemons: nodes that fail jobs again and again although their checks pass. A fleet's record in, a judgement per node out. Pure.

Incidents (`lemons_blame`) against time in service (`lemons_history`) through a filter (`lemons_filter`), times what
else speaks against a node (`lemons_marks`). How it is meant: docs/lemons.md.
"""

from __future__ import annotations

import dataclasses
import enum

import numpy as np

from remediator.detect.lemons_blame import Incidents, incidents
from remediator.detect.lemons_filter import Counts, believe
from remediator.detect.lemons_history import (
    DAY_S,
    Floats,
    History,
    Ints,
    Kind,
    bin_edges,
    covered,
    out_of_service,
    repairs,
)
from remediator.detect.lemons_marks import log_ratio, marks

SIGMAS = 2.0  # a day or a group of nodes counts as worse only beyond what chance does
GROUP_PRIOR = 3.0  # failures that a group must outweigh to be worse than the fleet
GROUP_MIN, GROUP_SHARE_MAX = 4, 0.6
WORSE_MAX, BETTER_MIN = 50.0, 0.3
UNSEEN_MAX = 100.0  # times the listed nodes
LISTED_SHARE = 0.3  # of the quiet nodes that there should be
PROBABILITY_MAX = 0.9999
WATCH, TEST, OUT = 0.1, 0.35, 0.9  # 0.35: an order to test is cheap, and precision there is one in two
REPAIRS_IN_VAIN = 2
REPAIRS_MEMORY_D = 90.0


class Advice(str, enum.Enum):
    """What to do. TEST: at the end of its job, before new work. REPAIR, REPLACE: it need not fail again to prove it."""

    NONE = "none"
    WATCH = "watch"
    TEST = "test"
    REPAIR = "repair"
    REPLACE = "replace"


@dataclasses.dataclass(frozen=True)
class Prices:
    """What a failure and a removal cost. `job_nodes` is used where the record does not tell."""

    gpus_per_node: float = 8.0
    job_nodes: float = 1.0
    lost_h: float = 0.42  # a restart of 10 min and half an interval of 30 min between checkpoints
    out_h: float = 20.0  # median repair
    horizon_d: float = 28.0


@dataclasses.dataclass(frozen=True)
class Judged:
    """Per node, as arrays of `History.nodes`; of the fleet, as numbers.

    Attributes:
        probability: that it is a lemon now.
        multiplier: times the fleet's rate, if it is one.
        saved_gpu_h: expected to be won by taking it out; negative where that costs more.
        advice: an `Advice` each.
        incidents, blame: their number, and how many failures they count.
        service_d: node-days in which it could fail.
        repairs: completed in the last 90 days.
        last: UTC seconds of the last incident, NaN.
        marks: nodes × `Mark`.
        rate_per_day, fleet_nodes, lemon_share, half_life_d: as the record has it.
    """

    probability: Floats
    multiplier: Floats
    saved_gpu_h: Floats
    advice: tuple[Advice, ...]
    incidents: Ints
    blame: Floats
    service_d: Floats
    repairs: Ints
    last: Floats
    marks: Floats
    rate_per_day: float
    fleet_nodes: float
    lemon_share: float
    half_life_d: float


def judge(
    history: History,
    as_of: float,
    fleet_nodes: int | None = None,
    factor: float = 3.0,
    prices: Prices | None = None,
    gpus: Floats | None = None,
) -> Judged:
    """Judge every node by what was known at `as_of` (UTC seconds).

    Args:
        history: the record, rows in any order, also later ones.
        as_of: nothing after it counts, no end of an interval either.
        fleet_nodes: how many nodes there are; without it those that the record cannot show are estimated.
        factor: a lemon fails at least so many times as often as the fleet, 3 or more.
        prices: for the expected GPU-hours.
        gpus: of each node, NaN where `prices` tell.
    """
    known = history.until(as_of)
    began = float(known.time.min()) if known.node.size else as_of
    edges = bin_edges(began, as_of)
    found = incidents(known)
    service = _service(known, as_of, edges)
    seen, mended = _binned(known, found, edges)
    unseen = _unseen(known, seen, fleet_nodes)
    worse = _worse_days(seen, service, unseen) * _worse_groups(known, seen, service, unseen)[:, None]
    quiet = np.median(service, axis=0) if history.nodes else np.diff(edges) / DAY_S
    calm = np.median(worse, axis=0) if history.nodes else np.ones(edges.size - 1)
    # Zero-width last bin: what came after a repair of the last day.
    counts = Counts(
        np.vstack([seen, np.zeros(seen.shape[1])]),
        _widened(np.vstack([service * worse, quiet * calm])),
        np.vstack([mended, np.zeros(mended.shape[1])]),
        np.append(np.diff(edges) / DAY_S, 0.0),
        unseen,
    )
    believed = believe(counts, factor)
    shown = marks(known, found, as_of)
    blame = seen.sum(axis=1)
    fleet = history.nodes + unseen
    odds = np.log(np.maximum(believed.probability, 1e-12)) - np.log1p(
        -np.minimum(believed.probability, PROBABILITY_MAX)
    )
    probability = np.minimum(1 / (1 + np.exp(-(odds + log_ratio(shown, int(fleet), blame)))), PROBABILITY_MAX)
    prices = prices or Prices()
    lately = _recent_repairs(known, as_of)
    saved = _saved(known, probability, believed.multiplier, believed.rate_per_day, prices, gpus)
    last = np.full(history.nodes, -np.inf)
    np.maximum.at(last, found.node, found.time)
    return Judged(
        probability=probability,
        multiplier=believed.multiplier,
        saved_gpu_h=saved,
        advice=tuple(map(_advice, probability.tolist(), saved.tolist(), lately.tolist())),
        incidents=np.bincount(found.node, minlength=history.nodes),
        blame=blame,
        service_d=service.sum(axis=1),
        repairs=lately,
        last=np.where(np.isfinite(last), last, np.nan),
        marks=shown,
        rate_per_day=believed.rate_per_day,
        fleet_nodes=fleet,
        lemon_share=believed.lemon_share,
        half_life_d=believed.half_life_d,
    )


def _widened(bins: Floats) -> Floats:
    return np.hstack([bins, np.zeros((bins.shape[0], 1))])


def _service(known: History, as_of: float, edges: Floats) -> Floats:
    """Node-days in each bin in which a node could fail: as the record tells, else whenever it was not out."""
    told = known.take(known.of(Kind.IN_SERVICE))
    ends = np.where(np.isfinite(told.end), told.end, as_of)
    lasting = ends > told.time
    # Jobs without an end on the record do not all still run: such rows tell only that the node was there.
    endless = not np.isfinite(told.end).any() and told.node.size > np.unique(told.node).size
    if endless or not lasting.any():
        return np.diff(edges) / DAY_S - covered(known.nodes, out_of_service(known, as_of), edges)
    spans = covered(known.nodes, (told.node[lasting], told.time[lasting], ends[lasting]), edges)
    untold = spans.sum(axis=1) == 0
    if untold.any() and not untold.all():
        spans[untold] = np.median(spans[~untold], axis=0)
    return spans


def _binned(known: History, found: Incidents, edges: Floats) -> tuple[Floats, Floats]:
    """(weighted incidents, completed repairs), nodes × (bins + 1): an incident after a repair of its bin goes one on."""
    bins = edges.size
    node, done = repairs(known)
    node, done = node[done >= edges[0]], done[done >= edges[0]]
    late = found.time >= edges[0]
    whose, when, weight = found.node[late], found.time[late], found.weight[late]
    at = np.clip(np.searchsorted(edges, done, side="left") - 1, 0, bins - 2)
    mended = np.zeros((known.nodes, bins))
    np.add.at(mended, (node, at), 1.0)
    first_done = np.full((known.nodes, bins), np.inf)
    np.minimum.at(first_done, (node, at), done)
    where = np.clip(np.searchsorted(edges, when, side="left") - 1, 0, bins - 2)
    where += when > first_done[whose, where]
    seen = np.zeros((known.nodes, bins))
    np.add.at(seen, (whose, where), weight)
    return seen, mended


def _unseen(known: History, seen: Floats, fleet_nodes: int | None) -> float:
    """Nodes that nothing happened to and that are not listed; Chao's lower bound from those hit once and twice."""
    if fleet_nodes is not None:
        return float(max(fleet_nodes - known.nodes, 0))
    if known.of(Kind.IN_SERVICE).any() or known.nodes == 0:
        return 0.0
    hit = np.round(seen.sum(axis=1))
    once, twice, never = int((hit == 1).sum()), int((hit == 2).sum()), int((hit == 0).sum())
    estimate = once * (once - 1) / (2 * (twice + 1))
    if never > LISTED_SHARE * estimate:  # whoever lists quiet nodes lists them all
        return 0.0
    return float(np.clip(estimate - never, 0.0, UNSEEN_MAX * known.nodes))


def _worse_days(seen: Floats, service: Floats, unseen: float) -> Floats:
    """How much worse than usual each bin was for everybody: a rollout, a heat wave. 1 × bins."""
    if seen.shape[0] == 0:
        return np.ones((1, service.shape[1]))
    days = service.sum(axis=0) * (1 + unseen / seen.shape[0])
    # A node counts once a bin, so that one lemon makes no bad day.
    hits = np.minimum(seen[:, :-1], 1.0).sum(axis=0)
    return _beyond_chance(hits, days * hits.sum() / max(days.sum(), 1e-9))[None, :]


def _worse_groups(known: History, seen: Floats, service: Floats, unseen: float) -> Floats:
    """How much worse each node's rack, batch or driver is than the fleet; the worst of them counts."""
    worse = np.ones(known.nodes)
    hits = np.minimum(seen.sum(axis=1), 3.0)
    days = service.sum(axis=1) * (1 + unseen / max(known.nodes, 1))
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
        offset = np.maximum(_beyond_chance(failed - worst, expected), 1.0)
        offset[(size < GROUP_MIN) | (size > GROUP_SHARE_MAX * known.nodes)] = 1.0
        worse[member] = np.maximum(worse[member], offset[ids])
    return worse


def _beyond_chance(hits: Floats, expected: Floats) -> Floats:
    """Observed over expected, drawn towards 1 by chance and by a prior."""
    excess = hits - expected
    excess = np.sign(excess) * np.maximum(np.abs(excess) - SIGMAS * np.sqrt(expected), 0.0)
    return np.asarray(
        np.clip((expected + excess + GROUP_PRIOR) / (expected + GROUP_PRIOR), BETTER_MIN, WORSE_MAX), dtype=np.float64
    )


def _recent_repairs(known: History, as_of: float) -> Ints:
    node, done = repairs(known)
    return np.bincount(node[done > as_of - REPAIRS_MEMORY_D * DAY_S], minlength=known.nodes)


def _saved(
    known: History, probability: Floats, multiplier: Floats, rate: float, prices: Prices, gpus: Floats | None
) -> Floats:
    """Failures that a removal spares, each with what it costs its job, less the node's own absence."""
    told = known.take((known.kind == Kind.FAILURE) & (known.size >= 1))
    usual = float(told.size.mean()) if told.node.size else prices.job_nodes
    many = np.bincount(told.node, minlength=known.nodes)
    jobs = np.where(many > 0, np.bincount(told.node, told.size, known.nodes) / np.maximum(many, 1), usual)
    failures = np.maximum(multiplier - 1, 0.0) * rate * prices.horizon_d
    own = np.full(known.nodes, prices.gpus_per_node) if gpus is None else gpus
    own = np.where(np.isfinite(own), own, prices.gpus_per_node)
    won = probability * failures * jobs * own * prices.lost_h
    return np.asarray(won - own * prices.out_h, dtype=np.float64)


def _advice(probability: float, saved_gpu_h: float, repaired: int) -> Advice:
    """Suspicion orders a test; only near certainty, or a repair in vain, does without."""
    if probability < WATCH:
        return Advice.NONE
    if probability < TEST:
        return Advice.WATCH
    if probability >= OUT and repaired >= REPAIRS_IN_VAIN:
        return Advice.REPLACE
    if probability >= OUT and saved_gpu_h > 0:
        return Advice.REPAIR
    return Advice.TEST
