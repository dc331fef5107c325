"""A judgement per node: the filter's result from incidents and time in service, times further evidence. Pure."""

from __future__ import annotations

import dataclasses
import enum

import numpy as np

from remediator.detection.lemons.failure_record import DAY_S, Floats, History, Ints, Kind, completed_repairs
from remediator.detection.lemons.incident_attribution import attribute_incidents
from remediator.detection.lemons.lemon_filter import infer_lemon_posterior
from remediator.detection.lemons.likelihood_marks import compute_marks, log_ratio
from remediator.detection.lemons.service_time import compute_fleet_exposure

PROBABILITY_MAX = 0.9999
WATCH, OUT = 0.1, 0.9
TEST_MIN, TEST_MAX = 0.25, 0.5  # a test is cheap, but one per ten healthy nodes is not
REPAIRS_IN_VAIN = 2
REPAIRS_MEMORY_D = 90.0
AGAIN = 2  # incidents: a single one is not repeated failure
SERVICE_MIN_D = 1.0  # with one failure and less service, no rate can be estimated


class Advice(str, enum.Enum):
    """What to do. TEST: at the end of its job, before new work. REPAIR, REPLACE: without waiting for another failure."""

    NONE = "none"
    WATCH = "watch"
    TEST = "test"
    REPAIR = "repair"
    REPLACE = "replace"


@dataclasses.dataclass(frozen=True)
class LemonCosts:
    """The cost of a failure and of a removal. `job_nodes` is used where the record does not say."""

    gpus_per_node: float = 8.0
    job_nodes: float = 1.0
    lost_h: float = 0.42  # a restart of 10 min and half a checkpoint interval of 30 min
    out_h: float = 20.0  # median repair
    horizon_d: float = 28.0


@dataclasses.dataclass(frozen=True)
class Judged:
    """Per node, as arrays of `History.nodes`; for the fleet, as numbers.

    Attributes:
        probability: that it is a lemon now.
        multiplier: times the fleet's rate, if it is one.
        saved_gpu_h: expected gain from isolating it; negative if that costs more.
        advice: an `Advice` each.
        incidents, blame: their number, and their weight in failures.
        service_d: node-days in which it could fail.
        repairs: completed in the last 90 days.
        last: UTC seconds of the last incident, NaN.
        marks: nodes × `Mark`.
        rate_per_day, fleet_nodes, lemon_share, half_life_d: as estimated from the record.
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


def judge_lemons(
    history: History,
    as_of: float,
    fleet_nodes: int | None = None,
    factor: float = 3.0,
    prices: LemonCosts | None = None,
    gpus: Floats | None = None,
) -> Judged:
    """Judge every node by what was known at `as_of` (UTC seconds).

    Args:
        history: the record, rows in any order, also later ones.
        as_of: later events are ignored, including the ends of intervals.
        fleet_nodes: number of nodes; without it, those that the record cannot show are estimated.
        factor: a lemon fails at least this many times as often as the fleet, 3 or more.
        prices: for the expected GPU-hours.
        gpus: of each node, NaN to use `prices`.
    """
    known = history.until(as_of)
    found = attribute_incidents(known)
    fleet = compute_fleet_exposure(known, found, as_of, fleet_nodes)
    believed = infer_lemon_posterior(fleet.counts, factor)
    rate = believed.rate_per_day * fleet.unit
    shown = compute_marks(known, found, as_of)
    blame = fleet.blame
    size = history.nodes + believed.unseen
    odds = np.log(np.maximum(believed.probability, 1e-12)) - np.log1p(
        -np.minimum(believed.probability, PROBABILITY_MAX)
    )
    probability = np.minimum(1 / (1 + np.exp(-(odds + log_ratio(shown, int(size), blame)))), PROBABILITY_MAX)
    prices = prices or LemonCosts()
    lately = _recent_repairs(known, as_of)
    saved = _saved_gpu_hours(known, probability, believed.multiplier, rate, prices, gpus)
    many = np.bincount(found.node, minlength=history.nodes)
    last = np.full(history.nodes, -np.inf)
    np.maximum.at(last, found.node, found.time)
    return Judged(
        probability=probability,
        multiplier=believed.multiplier,
        saved_gpu_h=saved,
        advice=_advise_nodes(probability, saved, lately, many, fleet.service_d),
        incidents=many,
        blame=blame,
        service_d=fleet.service_d,
        repairs=lately,
        last=np.where(np.isfinite(last), last, np.nan),
        marks=shown,
        rate_per_day=rate,
        fleet_nodes=size,
        lemon_share=believed.lemon_share,
        half_life_d=believed.half_life_d,
    )


def _recent_repairs(known: History, as_of: float) -> Ints:
    node, done = completed_repairs(known)
    return np.bincount(node[done > as_of - REPAIRS_MEMORY_D * DAY_S], minlength=known.nodes)


def _saved_gpu_hours(
    known: History, probability: Floats, multiplier: Floats, rate: float, prices: LemonCosts, gpus: Floats | None
) -> Floats:
    """Return GPU hours of prevented failures, minus the node's own absence."""
    told = known.take((known.kind == Kind.FAILURE) & (known.size >= 1))
    usual = float(told.size.mean()) if told.node.size else prices.job_nodes
    many = np.bincount(told.node, minlength=known.nodes)
    jobs = np.where(many > 0, np.bincount(told.node, told.size, known.nodes) / np.maximum(many, 1), usual)
    failures = np.maximum(multiplier - 1, 0.0) * rate * prices.horizon_d
    own = np.full(known.nodes, prices.gpus_per_node) if gpus is None else gpus
    own = np.where(np.isfinite(own), own, prices.gpus_per_node)
    won = probability * failures * jobs * own * prices.lost_h
    return np.asarray(won - own * prices.out_h, dtype=np.float64)


def _test_threshold(probability: Floats) -> float:
    """Return the probability from which to test: the best balance of precision and recall (F1) by these numbers."""
    falling = np.sort(probability)[::-1]
    found, tested = np.cumsum(falling), np.arange(1, falling.size + 1)
    best = float((2 * found / (tested + found[-1])).max()) if falling.size and found[-1] > 0 else 0.0
    # Including the next node helps while its probability is above half of the F1 reached.
    return float(np.clip(best / 2, TEST_MIN, TEST_MAX))


def _choose_advice(probability: float, saved_gpu_h: float, repaired: int, worth_test: float) -> Advice:
    """Choose the advice. A suspicion orders a test; only near certainty, or a failed repair, goes without."""
    if probability < WATCH:
        return Advice.NONE
    if probability < worth_test:
        return Advice.WATCH
    if probability >= OUT and repaired >= REPAIRS_IN_VAIN:
        return Advice.REPLACE
    if probability >= OUT and saved_gpu_h > 0:
        return Advice.REPAIR
    return Advice.TEST


def _advise_nodes(
    probability: Floats, saved: Floats, repaired: Ints, incidents: Ints, service_d: Floats
) -> tuple[Advice, ...]:
    worth_test = _test_threshold(probability)
    columns = (probability.tolist(), saved.tolist(), repaired.tolist(), incidents.tolist(), service_d.tolist())
    return tuple(
        _limit_single_incident(_choose_advice(likely, won, mended, worth_test), times, days)
        for likely, won, mended, times, days in zip(*columns, strict=True)
    )


def _limit_single_incident(advice: Advice, incidents: int, service_d: float) -> Advice:
    """Limit a node with a single incident to watching; without time in service, one incident says nothing."""
    if incidents >= AGAIN or advice is Advice.NONE:
        return advice
    return Advice.WATCH if service_d >= SERVICE_MIN_D else Advice.NONE
