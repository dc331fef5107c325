"""A day-by-day filter for the probability that a node is a lemon now. Pure.

A node is usual (its rate is the fleet's times a gamma-distributed factor) or a lemon (times an unknown factor of 3 to
220), and may change. Each day the counts update the states (Poisson), lemons become usual again with a half-life, and a
repair heals some. Unknowns of a fleet (its lemons' share and half-life, the spread of usual nodes, whether there is any
lemon at all) are weighted by how well they explain the whole fleet.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import NamedTuple

import numpy as np

from remediator.detection.lemons.failure_record import USUAL_RATE_PER_DAY, Floats, Ints

MULTIPLIERS = np.geomspace(3.0, 220.0, 12)
# Possible distributions of a fleet's lemons: mild, medium or bad ones.
SORTS = tuple(
    (np.exp(-0.5 * (np.log(MULTIPLIERS / middle) / sigma) ** 2), weight)
    for middle, sigma, weight in ((6.0, 0.4, 1.0), (14.0, 0.4, 1.0), (33.0, 0.4, 1.0), (90.0, 0.6, 1.0))
)
USUAL_POINTS = np.array([0.3, 0.6, 1.0, 1.6, 2.5])
# Candidate shares: the published ones.
SHARES = ((0.006, 1.0), (0.012, 1.0), (0.024, 1.0))
NO_LEMONS = 0.5  # prior against 1.0 for fleets with lemons: published fleets have some
HALF_LIVES_D = ((10.0, 1.0), (120.0, 2.0))  # 7 to 14 days where nodes are swapped, long where they never are
SPREADS = ((20.0, 10.0), (3.0, 1.0))  # gamma shape of usual nodes: real fleets vary more than chance
HEALED_BY_REPAIR = 0.58  # of 100 returned nodes 58 held four weeks
# A repair fixes some faults and does not touch others: a node that failed after three repairs will fail after the
# fourth.
MENDABLE, MENDED, STUBBORN_MENDED = 0.6, 0.95, 0.05
SPOILT_BY_REPAIR = 5.0  # times the share: a node just repaired is likelier a lemon than one never touched
RATE_SIGMA = 0.6  # of the logarithm: published fleets lie within a factor of three
RATE_ROUNDS, NEWTON_STEPS = 6, 3
FAILED = 0.5  # weighted incidents: a node with fewer is listed for other reasons than a failure
LISTED_SHARE = 0.6  # of the expected quiet nodes: a record that lists so many lists them all
UNSEEN_MAX = 100.0  # times the listed nodes


class IncidentCounts(NamedTuple):
    """Nodes × bins: weighted incidents, days in service scaled by common conditions, repairs at the end of a bin.

    `incidents` start an episode, `repeats` come soon after a return, where the fault before them would return at
    `relapse` per day. `days` is the length of each bin; the last row stands for `unseen` quiet nodes; NaN: unknown.
    """

    incidents: Floats
    repeats: Floats
    relapse: Floats
    exposure: Floats
    repairs: Floats
    days: Floats
    unseen: float


class _FleetHypothesis(NamedTuple):
    """A hypothesis about a fleet: share and half-life of lemons, gamma shape of usual nodes, weights of `MULTIPLIERS`."""

    share: float
    half_life_d: float
    spread: float
    lemons: Floats


@dataclasses.dataclass(frozen=True)
class LemonPosterior:
    """Per node: `probability` of being a lemon now, `multiplier` if it is one.

    For the fleet: its daily rate and its lemons.

    `unseen` is the number of quiet nodes that the record does not list: given, or estimated.
    """

    probability: Floats
    multiplier: Floats
    rate_per_day: float
    unseen: float
    lemon_share: float
    half_life_d: float


def infer_lemon_posterior(counts: IncidentCounts, factor: float = 3.0) -> LemonPosterior:
    """Return the posterior of each row but the last. `factor`: how many times the fleet's rate makes a lemon."""
    packed, inverse, weights = _distinct_rows(counts)
    totals = _RateTotals.of(packed, weights, int(inverse[-1]))
    runs = [_run_hypothesis(packed, totals, guess, log_prior) for guess, log_prior in _fleet_hypotheses()]
    log_weights = np.array([run.log_weight for run in runs])
    trust = np.exp(log_weights - log_weights.max())
    trust /= trust.sum()
    states = sum((t * run.states for t, run in zip(trust, runs, strict=True)), np.zeros_like(runs[0].states))
    lemon = states[:, USUAL_POINTS.size :]
    mass = lemon.sum(axis=1)
    both = np.tile(MULTIPLIERS, 2)
    multiplier = (lemon @ both) / np.maximum(mass, 1e-300)
    above = lemon[:, factor * (1 - 1e-9) <= both].sum(axis=1)
    half_lives = np.array([run.guess.half_life_d for run in runs])
    some = np.array([run.guess.share > 0 for run in runs])
    return LemonPosterior(
        probability=above[inverse][:-1],
        multiplier=multiplier[inverse][:-1],
        rate_per_day=float(trust @ np.array([run.rate for run in runs])),
        unseen=float(trust @ np.array([run.unseen for run in runs])),
        lemon_share=float(trust @ np.array([run.guess.share for run in runs])),
        half_life_d=float((trust[some] @ half_lives[some]) / max(trust[some].sum(), 1e-300)),
    )


class _HypothesisRun(NamedTuple):
    """The result of one hypothesis: rows × states now, log-likelihoods, the rate and the number of unseen nodes."""

    guess: _FleetHypothesis
    log_weight: float
    states: Floats
    rate: float
    unseen: float


def _fleet_hypotheses() -> list[tuple[_FleetHypothesis, float]]:
    """Return every hypothesis with the logarithm of its prior."""
    every = list(itertools.product(SHARES, HALF_LIVES_D, SPREADS, SORTS))
    found = [
        (_FleetHypothesis(share, half_life, spread, sort / sort.sum()), w1 * w2 * w3 * w4)
        for (share, w1), (half_life, w2), (spread, w3), (sort, w4) in every
    ]
    whole = sum(weight for _, weight in found)
    spreads = sum(weight for _, weight in SPREADS)
    none = SORTS[0][0] / SORTS[0][0].sum()
    found += [
        (_FleetHypothesis(0.0, 1.0, spread, none), NO_LEMONS * whole * weight / spreads) for spread, weight in SPREADS
    ]
    return [(guess, math.log(weight)) for guess, weight in found]


def _run_hypothesis(
    packed: IncidentCounts, totals: _RateTotals, guess: _FleetHypothesis, log_prior: float
) -> _HypothesisRun:
    rate, quiet = totals.rate(guess)
    states, log_z = _filter_forward(packed, rate, guess)
    log_weight = log_prior - 0.5 * (math.log(rate / USUAL_RATE_PER_DAY) / RATE_SIGMA) ** 2
    log_weight += float(totals.weights @ log_z)
    if totals.listed:
        return _HypothesisRun(guess, log_weight, states, rate, 0.0 if math.isnan(packed.unseen) else packed.unseen)
    # Correct for nodes that are listed only because they failed.
    log_weight -= float(totals.weights.sum()) * math.log(max(-math.expm1(float(log_z[totals.quiet])), 1e-12))
    most = UNSEEN_MAX * float(totals.weights.sum())
    return _HypothesisRun(guess, log_weight, states, rate, min(max(quiet - totals.never, 0.0), most))


def _distinct_rows(counts: IncidentCounts) -> tuple[IncidentCounts, Ints, Floats]:
    """Merge equal rows, to compute each once: most nodes have no events. The unseen have no weight yet."""
    together = np.hstack([counts.incidents, counts.repeats, counts.relapse, counts.exposure, counts.repairs])
    kept, inverse = np.unique(np.round(together, 6), axis=0, return_inverse=True)
    inverse = np.asarray(inverse).reshape(-1)
    weights = np.ones(inverse.size)
    weights[-1] = 0.0
    bins = counts.days.size
    seen, repeats, relapse, exposure, repairs = (kept[:, bins * part : bins * (part + 1)] for part in range(5))
    packed = IncidentCounts(seen, repeats, relapse, exposure, repairs, counts.days, counts.unseen)
    together_weigh = np.bincount(inverse, weights).astype(np.float64)
    return packed, inverse.astype(np.int64), together_weigh


class _RateTotals(NamedTuple):
    """Rows as totals, for the rate.

    Attributes:
        seen, days: weighted incidents and exposure of each row.
        weights: how many nodes have this row.
        quiet: the row of the unseen.
        listed: all quiet nodes are listed, or their number is given, and `weights` includes them; otherwise only failed
            ones.
        never: quiet nodes that are listed for other reasons.
    """

    seen: Floats
    days: Floats
    weights: Floats
    quiet: int
    listed: bool
    never: float

    @classmethod
    def of(cls, counts: IncidentCounts, weights: Floats, quiet: int) -> _RateTotals:
        """Build the totals; `quiet` is the row of the unseen, which `weights` leaves out."""
        # Of repeats only those count that chance explains better than the fault before them.
        own = counts.repeats * USUAL_RATE_PER_DAY / (USUAL_RATE_PER_DAY + counts.relapse)
        seen, days = (counts.incidents + own).sum(axis=1), counts.exposure.sum(axis=1)
        told = not math.isnan(counts.unseen)
        failed = seen >= FAILED
        whole = weights.copy()
        whole[quiet] += counts.unseen if told else 0.0
        everyone = cls(seen, days, whole, quiet, True, 0.0)
        failing = cls(seen, days, weights * failed, quiet, False, float(weights @ ~failed))
        # Midpoints of rate and share: how many quiet nodes to expect, to see whether they are listed.
        flat = np.full(MULTIPLIERS.size, 1.0 / MULTIPLIERS.size)
        middle = _FleetHypothesis(SHARES[1][0], HALF_LIVES_D[-1][0], SPREADS[0][0], flat)
        return everyone if told or failing.never > LISTED_SHARE * failing.rate(middle)[1] else failing

    def rate(self, guess: _FleetHypothesis) -> tuple[float, float]:
        """Return (failures a day of a usual node, unlisted nodes without failures), likeliest under a prior.

        Lemons are left out by their probability. A node that is listed only because it failed stands for 1 / (e^rT - 1)
        others that did not; including lemons, the fleet would look too small.
        """
        prior, times = np.log(np.maximum(_state_prior(guess), 1e-300)), _state_rate_factors(guess)
        log_rate, usual = math.log(USUAL_RATE_PER_DAY), self.weights
        prior = prior + self.seen[:, None] * np.log(times)
        for _ in range(RATE_ROUNDS):
            log_like = prior + self.seen[:, None] * log_rate - self.days[:, None] * (math.exp(log_rate) * times)
            likely = np.exp(log_like - log_like.max(axis=1, keepdims=True))
            usual = self.weights * likely[:, : USUAL_POINTS.size].sum(axis=1) / likely.sum(axis=1)
            for _ in range(NEWTON_STEPS):
                log_rate = self._likelier(usual, log_rate)
        quiet = (
            0.0 if self.listed else float(usual @ (1.0 / np.maximum(np.expm1(math.exp(log_rate) * self.days), 1e-9)))
        )
        return math.exp(log_rate), quiet

    def _likelier(self, usual: Floats, log_rate: float) -> float:
        """One Newton step towards the likeliest rate, for a log-normal prior and Poisson counts of at least one."""
        mean = np.maximum(math.exp(log_rate) * self.days, 1e-9)
        expected = mean if self.listed else mean / -np.expm1(-mean)
        bend = float(usual @ (expected * (1.0 + mean - expected))) + RATE_SIGMA**-2
        slope = float(usual @ (self.seen - expected)) - RATE_SIGMA**-2 * (log_rate - math.log(USUAL_RATE_PER_DAY))
        return log_rate + max(-1.0, min(1.0, slope / bend))


def _state_rate_factors(guess: _FleetHypothesis) -> Floats:
    """Return each state's multiple of the fleet's rate: usual nodes, lemons that repairs fix, and other lemons."""
    usual = _usual_weights(guess.spread)
    return np.concatenate([USUAL_POINTS / (usual @ USUAL_POINTS), MULTIPLIERS, MULTIPLIERS])


def _state_prior(guess: _FleetHypothesis) -> Floats:
    lemons = np.concatenate([MENDABLE * guess.lemons, (1 - MENDABLE) * guess.lemons])
    return np.concatenate([(1 - guess.share) * _usual_weights(guess.spread), guess.share * lemons])


def _usual_weights(shape: float) -> Floats:
    """Return a gamma distribution of mean 1 on a few points."""
    log_density = (shape - 1) * np.log(USUAL_POINTS) - shape * USUAL_POINTS + np.log(USUAL_POINTS)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    return np.asarray(weights, dtype=np.float64)


def _filter_forward(counts: IncidentCounts, rate: float, guess: _FleetHypothesis) -> tuple[Floats, Floats]:
    """Return (rows × states now, log-likelihood of each row)."""
    share, rates = guess.share, rate * _state_rate_factors(guess)
    usual, lemons = (
        _usual_weights(guess.spread),
        np.concatenate([MENDABLE * guess.lemons, (1 - MENDABLE) * guess.lemons]),
    )
    mended = np.repeat([MENDED, STUBBORN_MENDED], MULTIPLIERS.size)
    rows = counts.incidents.shape[0]
    states = np.tile(_state_prior(guess), (rows, 1))
    log_z = np.zeros(rows)
    leave = math.log(2.0) / guess.half_life_d
    enter = leave * share / (1 - share)
    log_rates = np.log(rates)
    for number, days in enumerate(counts.days.tolist()):
        seen, exposed = counts.incidents[:, number, None], counts.exposure[:, number, None]
        log_like = seen * log_rates - exposed * rates
        rows_again = np.flatnonzero(counts.repeats[:, number])
        if rows_again.size:
            again, relapse = counts.repeats[rows_again, number, None], counts.relapse[rows_again, number, None]
            log_like[rows_again] += again * np.log(rates + relapse)
        top = log_like.max(axis=1, keepdims=True)
        states *= np.exp(log_like - top)
        total = states.sum(axis=1)
        log_z += np.log(total) + top[:, 0]
        states /= total[:, None]
        if share > 0:
            healed, spoilt = -math.expm1(-leave * days), -math.expm1(-enter * days)
            states = _mix_states(states, healed, spoilt, usual, lemons)
            done = np.minimum(counts.repairs[:, number], 1.0)
            if done.any():
                spoilt_by = min(0.2, SPOILT_BY_REPAIR * share)
                states = _mix_states(states, done[:, None] * mended, done * spoilt_by, usual, lemons)
    return states, log_z


def _mix_states(
    states: Floats, healed: Floats | float, spoilt: Floats | float, usual: Floats, lemons: Floats
) -> Floats:
    """Move some lemons to usual and some usual nodes to lemons.

    `healed`: rows × lemons, or one for all; `spoilt`: by row.
    """
    many = usual.size
    gone = states[:, many:] * healed
    sour = states[:, :many] * np.reshape(spoilt, (-1, 1))
    mixed = np.empty_like(states)
    mixed[:, :many] = states[:, :many] - sour + gone.sum(axis=1)[:, None] * usual
    mixed[:, many:] = states[:, many:] - gone + sour.sum(axis=1)[:, None] * lemons
    return mixed
