"""Robust centres and spreads; holes (NaN) are ignored. Pure."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from remediator.detection.stragglers.step_trace import Floats

MAD_TO_SIGMA = 1.4826
ENOUGH = 100_000
LONG_ROW = 1000  # shorter ones are sorted faster than one is taken after the other
MAD_EFFICIENCY = 0.37  # a spread from medians of n values is as reliable as a usual one of 0.37 n
TAIL_SHARE, TAIL_SIGMAS = 0.8, 0.8416
TAIL_STRETCH = 2.0
TAIL_VALUES_MIN, TAIL_SHARE_MIN, TAIL_DOUBT = 100, 0.002, 2.5
TAILS = (math.inf, 30.0, 20.0, 12.0, 8.0, 6.0, 5.0, 4.0, 3.0, 2.5, 2.0)


def nan_median(values: Floats, axis: int) -> Floats:
    """Return the median along `axis`, NaN without values."""
    if not values.shape[axis]:
        return np.full(np.delete(values.shape, axis), np.nan)
    if not np.isnan(values).any():
        return _median_along(values, axis)
    if axis == 1 and values.shape[1] >= LONG_ROW:
        return np.array([known_median(row) for row in values])
    ordered = np.sort(values, axis=axis)  # NaN sorts last
    known = np.sum(~np.isnan(values), axis=axis, keepdims=True)
    last = max(values.shape[axis] - 1, 0)
    low = np.take_along_axis(ordered, np.clip((known - 1) // 2, 0, last), axis)
    high = np.take_along_axis(ordered, np.clip(known // 2, 0, last), axis)
    middle = np.where(known > 0, (low + high) / 2, np.nan)
    return np.asarray(np.squeeze(middle, axis=axis))


def _median_along(values: Floats, axis: int) -> Floats:
    """Return the median along `axis` of values without NaN.

    `np.median` selects three places, the last one to find NaN, and each costs as much as the first.
    """
    half = values.shape[axis] // 2
    parted = np.partition(values, half, axis=axis)
    high = np.take(parted, half, axis=axis)
    if values.shape[axis] % 2:
        return np.asarray(high)
    lower = parted[:half] if axis == 0 else parted[:, :half]
    return np.asarray((lower.max(axis=axis) + high) / 2)


def median_of(known: Floats) -> float:
    """Return the median of values without NaN; NaN without values."""
    if not known.size:
        return math.nan
    half = known.size // 2
    parted = np.partition(known.reshape(-1), half)
    return float(parted[half] if known.size % 2 else (parted[:half].max() + parted[half]) / 2)


def known_median(values: Floats) -> float:
    """Return the median of the values that are known; NaN if none is."""
    return median_of(values[~np.isnan(values)])


def quantiles_of(known: Floats, shares: tuple[float, ...]) -> list[float]:
    """Return quantiles of values without NaN, interpolated linearly and rounded as `np.quantile` does."""
    parted = known.reshape(-1).copy()
    found = []
    for share in shares:
        place = (parted.size - 1) * share
        low = min(int(place), parted.size - 2) if parted.size > 1 else 0
        parted.partition(low)
        below = float(parted[low])
        above = float(parted[low + 1 :].min(initial=np.inf)) if parted.size > 1 else below
        part, apart = place - low, above - below
        found.append(above - apart * (1 - part) if part >= 0.5 else below + apart * part)
    return found


def excess_over_others(values: Floats, fewest: int) -> Floats:
    """Return (S, R): each value minus the median of the *other* values of its row.

    NaN in rows with fewer than `fewest`.

    A value must not take part in its own comparison: among four it would move the median.
    """
    if values.shape[1] >= LONG_ROW and fewest > 1:
        return np.stack([_row_excess(row, fewest) for row in values]) if len(values) else values.copy()
    ordered = np.sort(values, axis=1)
    known = np.sum(~np.isnan(values), axis=1, keepdims=True)
    last = values.shape[1] - 1
    middle = (known - 2) // 2, (known - 1) // 2  # of known - 1 others
    others = np.zeros_like(values)
    for place in middle:
        here = np.take_along_axis(ordered, np.clip(place, 0, last), 1)
        after = np.take_along_axis(ordered, np.clip(place + 1, 0, last), 1)
        others += np.where(values > here, here, after) / 2
    return np.where(known >= fewest, values - others, np.nan)


def _row_excess(row: Floats, fewest: int) -> Floats:
    """Return the same for one long row, whose two or three middle values need no sorted row."""
    known = row[~np.isnan(row)]
    if known.size < fewest:
        return np.full_like(row, np.nan)
    half = known.size // 2
    known.partition(half)
    lower, middle = known[:half].max(), known[half]
    if known.size % 2 == 0:  # a low value's others have the upper middle one as their median, a high value's the lower
        return np.asarray(row - np.where(row > lower, lower, middle))
    upper = known[half + 1 :].min()
    return np.asarray(row - (np.where(row > lower, lower, middle) / 2 + np.where(row > middle, middle, upper) / 2))


def sample_known(values: Floats) -> Floats:
    """Return the known values, or every n-th of them: enough to estimate a spread."""
    finite = np.isfinite(values)
    known = values.reshape(-1) if finite.all() else values[finite]
    return known[:: max(1, known.size // ENOUGH)]


def robust_spread(values: Floats) -> float:
    """Return the standard deviation of the well-behaved majority; NaN without values."""
    known = sample_known(values)
    if not known.size:
        return math.nan
    return spread_around(known, median_of(known))


def spread_around(known: Floats, middle: float) -> float:
    """Return the same for known values with this median."""
    return MAD_TO_SIGMA * median_of(np.abs(known - middle))


def upper_spread(values: Floats) -> float:
    """Return the same, up to twice as wide where the upper tail is longer than a normal one.

    Naturally uneven load (experts, long sequences) has such a tail, and its last rank is no culprit. The limit keeps a
    slow node among few from hiding itself.
    """
    known = sample_known(values)
    usual = robust_spread(known)
    if known.size < 10:
        return usual
    high, middle = quantiles_of(known, (TAIL_SHARE, 0.5))
    return float(np.clip((high - middle) / TAIL_SIGMAS, usual, TAIL_STRETCH * usual))


def step_noise(series: Floats) -> float:
    """Return the spread of a series from step to step: a jump or slope does not widen it."""
    known = series[np.isfinite(series)]
    return robust_spread(np.diff(known)) / math.sqrt(2) if known.size > 2 else math.nan


def critical_spreads(chance: float, looks: int, known: int, tail: float = math.inf) -> float:
    """Return how many spreads above the centre one of `looks` values reaches with probability `chance` by noise alone.

    Args:
        chance: that any of them does (Bonferroni).
        looks: how many are compared.
        known: how many values the spread was taken from; few make it unsure (Student's t).
        tail: degrees of freedom of the values themselves; they at most double the bound, or one unusually fast rank
            would
            hide all that are slow.
    """
    z = NormalDist().inv_cdf(1 - chance / max(looks, 1))
    free = max(MAD_EFFICIENCY * known, 3.0)
    bound = _student_quantile(z, free)
    return bound if tail >= free else min(_student_quantile(z, tail), TAIL_STRETCH * bound)


def _student_quantile(z: float, free: float) -> float:
    """Return Student's t where the normal distribution has `z` (Wallace's approximation)."""
    if math.isinf(free):
        return z
    exponent = min(((8 * free + 3) / (8 * free + 1) * z) ** 2 / free, 50.0)
    return math.sqrt(free * math.expm1(exponent))


def lower_tail(values: Floats) -> float:
    """Return the degrees of freedom of Student's t that fit the lower tail; infinite for a normal one.

    The lower one, because culprits are in the upper.
    """
    known = sample_known(values)
    if known.size < TAIL_VALUES_MIN:
        return math.inf
    share = max(TAIL_SHARE_MIN, 10 / known.size)
    middle, (low,) = median_of(known), quantiles_of(known, (share,))
    far = (middle - low) / max(spread_around(known, middle), 1e-12)
    normal = NormalDist()
    z = normal.inv_cdf(1 - share)
    room = 1 + TAIL_DOUBT / (z * z * math.sqrt(share * known.size))  # standard error of a quantile
    for free in TAILS:
        expected = _student_quantile(z, free) / _student_quantile(normal.inv_cdf(0.75), free) / MAD_TO_SIGMA
        if far <= room * expected:
            return free
    return TAILS[-1]


def surprise_probability(z: float, looks: int) -> float:
    """Return the probability, at most 1, that the greatest of `looks` normal values reaches `z`."""
    return min(1.0, max(looks, 1) * 0.5 * math.erfc(z / math.sqrt(2)))


def binomial_tail(hits: int, trials: int, share: float) -> float:
    """Return the probability of at least so many hits if each trial is one with probability `share`."""
    if hits <= 0:
        return 1.0
    share = min(max(share, 1e-12), 1 - 1e-12)
    ways = math.lgamma(trials + 1)
    return min(1.0, math.fsum(
        math.exp(ways - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
                 + k * math.log(share) + (trials - k) * math.log1p(-share))
        for k in range(hits, trials + 1)
    ))  # fmt: skip
