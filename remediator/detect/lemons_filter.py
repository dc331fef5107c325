"""Is this node a lemon now? A filter over days: usual nodes and lemons, either of which may become the other. Pure.

A node is usual (its rate is the fleet's times a gamma-distributed factor) or a lemon (times an unknown factor of 3 to
220). Day by day the counts speak (Poisson), lemons become usual again with a half-life, a repair heals some. What
cannot be known of a fleet beforehand (its lemons' share and half-life, the spread of usual nodes, whether there is any
lemon at all) is weighed by how well it explains the whole fleet.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import NamedTuple

import numpy as np

from remediator.detect.lemons_history import Floats, Ints

MULTIPLIERS = np.geomspace(3.0, 220.0, 10)
# How this fleet's lemons may be spread over them: mild ones, middling ones, or of all sorts.
SORTS = tuple(
    (np.exp(-0.5 * (np.log(MULTIPLIERS / middle) / sigma) ** 2), weight)
    for middle, sigma, weight in ((7.0, 0.5, 1.0), (20.0, 0.6, 1.0), (25.0, 10.0, 1.0))
)
USUAL_POINTS = np.array([0.3, 0.6, 1.0, 1.6, 2.5])
# Shares to weigh, around the published 0.6, 1.2 and 2.4 %; small fleets have shares that large ones cannot.
SHARES = ((0.003, 1.0), (0.012, 2.0), (0.04, 1.0))
NO_LEMONS = 1.0  # against 1.0 for fleets that have some, before anything is seen
HALF_LIVES_D = ((10.0, 1.0), (120.0, 1.0))  # 7 to 14 days where nodes are swapped, long where they never are
SPREADS = ((20.0, 10.0), (3.0, 1.0))  # gamma shape of usual nodes: real fleets are less even than dice
HEALED_BY_REPAIR = 0.58  # of 100 returned nodes 58 held four weeks
# Some faults a repair mends, some it does not touch: who failed after three repairs will fail after the fourth.
MENDABLE, MENDED, STUBBORN_MENDED = 0.6, 0.95, 0.05
SPOILT_BY_REPAIR = 5.0  # times the share: a node just repaired is likelier a lemon than one never touched
RATE_PRIOR_PER_DAY, RATE_PRIOR_FAILURES = 0.004, 2.0  # 2.3 to 6.5 per 1000 node-days in published fleets
RATE_ROUNDS = 4


class Counts(NamedTuple):
    """Nodes × bins: weighted incidents, days in service times what all nodes alike suffered, repairs at the end of a bin.

    `days` is the length of each bin; `unseen` quiet nodes stand behind the last row, which is theirs.
    """

    incidents: Floats
    exposure: Floats
    repairs: Floats
    days: Floats
    unseen: float


class _Guess(NamedTuple):
    """What a fleet may be like: share and half-life of lemons, gamma shape of usual nodes, weights of `MULTIPLIERS`."""

    share: float
    half_life_d: float
    spread: float
    lemons: Floats


@dataclasses.dataclass(frozen=True)
class Believed:
    """Per node: `probability` of being a lemon now, `multiplier` if it is one; of the fleet: its rate a day, its lemons."""

    probability: Floats
    multiplier: Floats
    rate_per_day: float
    lemon_share: float
    half_life_d: float


def believe(counts: Counts, factor: float = 3.0) -> Believed:
    """The posterior of each row but the last. `factor`: how many times the fleet's rate makes a lemon."""
    packed, inverse, weights = _distinct(counts)
    rate = _rate(packed, weights)
    runs: list[tuple[float, Floats, float, float]] = []
    every = itertools.product(SHARES, HALF_LIVES_D, SPREADS, SORTS)
    whole = math.prod(sum(weight for _, weight in each) for each in (SHARES, HALF_LIVES_D, SORTS))
    for (share, w1), (half_life, w2), (spread, w3), (sort, w4) in every:
        states, log_z = _filter(packed, rate, _Guess(share, half_life, spread, sort / sort.sum()))
        runs.append((float(weights @ log_z) + math.log(w1 * w2 * w3 * w4 / whole), states, share, half_life))
    for spread, w3 in SPREADS:
        states, log_z = _filter(packed, rate, _Guess(0.0, 1.0, spread, SORTS[0][0] / SORTS[0][0].sum()))
        runs.append((float(weights @ log_z) + math.log(NO_LEMONS * w3), states, 0.0, math.nan))
    log_weights = np.array([run[0] for run in runs])
    trust = np.exp(log_weights - log_weights.max())
    trust /= trust.sum()
    states = sum((t * run[1] for t, run in zip(trust, runs, strict=True)), np.zeros_like(runs[0][1]))
    lemon = states[:, USUAL_POINTS.size :]
    mass = lemon.sum(axis=1)
    both = np.tile(MULTIPLIERS, 2)
    multiplier = (lemon @ both) / np.maximum(mass, 1e-300)
    above = lemon[:, factor * (1 - 1e-9) <= both].sum(axis=1)
    half_lives = np.array([run[3] for run in runs])
    told = np.isfinite(half_lives)
    middle = float((trust[told] @ half_lives[told]) / max(trust[told].sum(), 1e-300))
    share = float(trust @ np.array([run[2] for run in runs]))
    return Believed(above[inverse][:-1], multiplier[inverse][:-1], rate, share, middle)


def _distinct(counts: Counts) -> tuple[Counts, Ints, Floats]:
    """Rows that are alike are computed once: most nodes of a fleet have nothing to tell."""
    together = np.hstack([counts.incidents, counts.exposure, counts.repairs])
    kept, inverse = np.unique(np.round(together, 6), axis=0, return_inverse=True)
    inverse = np.asarray(inverse).reshape(-1)
    bins = counts.days.size
    weights = np.ones(inverse.size)
    weights[-1] = counts.unseen
    packed = Counts(kept[:, :bins], kept[:, bins : 2 * bins], kept[:, 2 * bins :], counts.days, 0.0)
    together_weigh = np.bincount(inverse, weights).astype(np.float64)
    return packed, inverse.astype(np.int64), together_weigh


def _rate(counts: Counts, weights: Floats) -> float:
    """Failures a day of a usual node: lemons are left out by how much they are lemons."""
    seen, days = counts.incidents.sum(axis=1), counts.exposure.sum(axis=1)
    prior_days = RATE_PRIOR_FAILURES / RATE_PRIOR_PER_DAY
    # The median node first: a few lemons may hold most of a fleet's failures.
    rate = float((RATE_PRIOR_FAILURES + weights @ np.minimum(seen, 2.0)) / (prior_days + weights @ days))
    guess = _Guess(SHARES[1][0], HALF_LIVES_D[-1][0], SPREADS[0][0], SORTS[-1][0] / SORTS[-1][0].sum())
    for _ in range(RATE_ROUNDS):
        states, _ = _filter(counts, rate, guess)
        usual = weights * states[:, : USUAL_POINTS.size].sum(axis=1)
        rate = float((RATE_PRIOR_FAILURES + usual @ seen) / (prior_days + usual @ days))
    return rate


def _usual_weights(shape: float) -> Floats:
    """A gamma distribution of mean 1 on a few points."""
    log_density = (shape - 1) * np.log(USUAL_POINTS) - shape * USUAL_POINTS + np.log(USUAL_POINTS)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    return np.asarray(weights, dtype=np.float64)


def _filter(counts: Counts, rate: float, guess: _Guess) -> tuple[Floats, Floats]:
    """(rows × states now, log-likelihood of each row)."""
    share, lemons = guess.share, np.concatenate([MENDABLE * guess.lemons, (1 - MENDABLE) * guess.lemons])
    mended = np.repeat([MENDED, STUBBORN_MENDED], MULTIPLIERS.size)
    usual = _usual_weights(guess.spread)
    rates = rate * np.concatenate([USUAL_POINTS / (usual @ USUAL_POINTS), MULTIPLIERS, MULTIPLIERS])
    rows = counts.incidents.shape[0]
    states = np.tile(np.concatenate([(1 - share) * usual, share * lemons]), (rows, 1))
    log_z = np.zeros(rows)
    leave = math.log(2.0) / guess.half_life_d
    enter = leave * share / (1 - share)
    log_rates = np.log(rates)
    for number, days in enumerate(counts.days.tolist()):
        seen, exposed = counts.incidents[:, number, None], counts.exposure[:, number, None]
        log_like = seen * (log_rates - np.log(rate)) - exposed * (rates - rate)
        top = log_like.max(axis=1, keepdims=True)
        states *= np.exp(log_like - top)
        total = states.sum(axis=1)
        log_z += np.log(total) + top[:, 0]
        states /= total[:, None]
        if share > 0:
            healed, spoilt = -math.expm1(-leave * days), -math.expm1(-enter * days)
            states = _mixed(states, healed, spoilt, usual, lemons)
            done = np.minimum(counts.repairs[:, number], 1.0)
            if done.any():
                spoilt_by = min(0.2, SPOILT_BY_REPAIR * share)
                states = _mixed(states, done[:, None] * mended, done * spoilt_by, usual, lemons)
    return states, log_z


def _mixed(states: Floats, healed: Floats | float, spoilt: Floats | float, usual: Floats, lemons: Floats) -> Floats:
    """Some lemons become usual nodes, some usual nodes lemons. `healed`: rows × lemons, or one for all; `spoilt`: by row."""
    many = usual.size
    gone = states[:, many:] * healed
    sour = states[:, :many] * np.reshape(spoilt, (-1, 1))
    mixed = np.empty_like(states)
    mixed[:, :many] = states[:, :many] - sour + gone.sum(axis=1)[:, None] * usual
    mixed[:, many:] = states[:, many:] - gone + sour.sum(axis=1)[:, None] * lemons
    return mixed
