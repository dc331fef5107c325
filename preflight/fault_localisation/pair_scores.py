"""Classifies pairs as slow or clean: every pair against its class, with the noise estimated from the data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from preflight.fault_localisation.localisation_records import PairExpectations, PairResult, Topology, Why

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

INSIDE, ACROSS, UNKNOWN = 0, 1, 2
CLASS_WORDS = ("inside a leaf", "across leaves", "of unknown leaves")
# Faults only slow pairs, so the baseline is the cluster at the upper end: correct with up to 3 bad GPUs of 8, where 18
# of 28 cells are slow.
_CROWD_QUANTILE = 0.8
_CROWD_WIDTH = 0.1  # log; initial. Then four sigmas of the estimate
_NOISE_MIN = 0.005  # repeated measurements of one pair differ by this much on an idle fabric
_NOISE_FEW = 0.02  # the noise of fewer than eight cells cannot be estimated
_CELLS_FEW, _CELLS_MIN = 8, 3
_LOW_QUANTILE, _LOW_SIGMAS = 0.05, 1.645  # the noise of a class without a cluster, from its slow side
_FALSE_CELLS = 0.01  # expected number of clean cells that look slow by noise


@dataclass(frozen=True)
class Cells:
    """One rail's pairs. Arrays of C cells; nodes are indices into `Topology.nodes`, leaves −1 if unknown.

    `best` is the log of the best rate over the baseline, −inf if it never gave a result; a cell is slow below `bound` and clean
    from `clears` (logs), with a gap between them in noisy classes. `times` is how often it was measured, `times_slow` how often it
    was slow, `last` the last round with a measurement. `spread` is the noise of each class, `level` its baseline as a share of
    the expected rate (NaN: no expectation), `fast` the number of cells as far above the baseline as slow ones are below.
    """

    a: Ints
    b: Ints
    kind: Ints
    best: Floats
    times: Ints
    times_slow: Ints
    last: Ints
    bound: Floats
    clears: Floats
    spread: Mapping[int, float]
    level: Mapping[int, float]
    fast: int

    @property
    def slow(self) -> Bools:
        """(C,) which cells are slow."""
        return np.asarray(self.best < self.bound)

    @property
    def clean(self) -> Bools:
        """(C,) which cells clear both ends."""
        return np.asarray(self.best >= self.clears)


def is_readable(result: PairResult) -> bool:
    """Whether a result counts: a rate, or a missing result where there should be one."""
    if result.why is Why.NOT_RUN:
        return False
    if result.value is None or result.why is not Why.MEASURED:
        return result.why is not Why.MEASURED
    return math.isfinite(result.value) and result.value > 0


def score_cells(
    results: Sequence[PairResult],
    topology: Topology,
    expectations: PairExpectations,
    wide: frozenset[int] = frozenset(),
) -> Cells:
    """The cells of the readable `results`, all of one rail, between nodes of the topology.

    Classes in `wide` are known not to be one cluster: their spread counts as noise. A class of fewer than three cells has no
    baseline; its cells are judged by the expectation, and omitted without one.
    """
    place = {name: number for number, name in enumerate(topology.nodes)}
    rates: dict[tuple[int, int], list[float]] = {}
    last: dict[tuple[int, int], int] = {}
    for result in results:
        ends = sorted((place[result.a], place[result.b]))
        answered = result.why is Why.MEASURED and result.value is not None
        expected = _find_expected_rate(result, topology, expectations) or 1.0
        rate = math.log((result.value or 1.0) / expected) if answered else -math.inf
        pair = ends[0], ends[1]
        rates.setdefault(pair, []).append(rate)
        last[pair] = max(last.get(pair, result.round), result.round)
    pairs = sorted(rates)
    a, b = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    kind = np.array([_classify_pair(topology, topology.nodes[i], topology.nodes[j]) for i, j in pairs], dtype=np.int64)
    best = np.array([max(rates[pair]) for pair in pairs])
    classes = _fit_classes(best, kind, expectations, wide)
    middle, bound, clears = (
        np.array([getattr(classes[k], name) for k in kind]) for name in ("middle", "bound", "clears")
    )
    times = np.array([len(rates[pair]) for pair in pairs], dtype=np.int64)
    slow = [sum(rate - m < under for rate in rates[pair]) for pair, m, under in zip(pairs, middle, bound, strict=True)]
    kept = np.array([classes[k].judged for k in kind], dtype=bool) | np.isneginf(best)
    best = best - middle
    slow_times = np.array(slow, dtype=np.int64)
    last_round = np.array([last[pair] for pair in pairs], dtype=np.int64)
    return Cells(
        a[kept],
        b[kept],
        kind[kept],
        best[kept],
        times[kept],
        slow_times[kept],
        last_round[kept],
        bound[kept],
        clears[kept],
        spread={k: c.noise for k, c in classes.items()},
        level={k: c.level for k, c in classes.items()},
        fast=int(np.count_nonzero(best[kept] > -clears[kept])),
    )


@dataclass(frozen=True)
class _Class:
    """The level of a class of pairs (logs), and whether there was a basis for it."""

    middle: float
    noise: float
    bound: float
    clears: float
    level: float
    judged: bool


def _fit_classes(best: Floats, kind: Ints, expectations: PairExpectations, wide: frozenset[int]) -> dict[int, _Class]:
    z = NormalDist().inv_cdf(1 - _FALSE_CELLS / max(1, len(best)))
    worth = -math.log1p(-expectations.slowdown_min)
    found = {}
    for number, of_class in ((INSIDE, expectations.inside), (ACROSS, expectations.across), (UNKNOWN, None)):
        answered = best[(kind == number) & np.isfinite(best)]
        known = of_class is not None or bool(expectations.of_node)
        if len(answered) < _CELLS_MIN:
            bound = min(-z * _NOISE_FEW, math.log(expectations.floor))
            found[number] = _Class(0.0, _NOISE_FEW, bound, bound, math.nan, known)
            continue
        middle, noise = _estimate_crowd(answered)
        reached = answered[answered >= math.log(expectations.floor)]
        if known and middle < math.log(expectations.floor) and len(reached) >= _CELLS_MIN:
            middle, noise = _estimate_crowd(reached)  # most are slow, and a few show the possible rate
        noise = max(noise, _NOISE_FEW if len(answered) < _CELLS_FEW else _NOISE_MIN)
        clears = -max(worth, z * noise)
        if number in wide:
            noise = max(noise, (middle - float(np.quantile(answered, _LOW_QUANTILE))) / _LOW_SIGMAS)
        level = math.exp(middle) if known else math.nan
        found[number] = _Class(middle, noise, -max(worth, z * noise), clears, level, judged=True)
    return found


def _estimate_crowd(rates: Floats) -> tuple[float, float]:
    """Center and sigma of the cluster at the upper end (median, and median distance from it); slow cells do not affect them."""
    middle, noise = float(np.quantile(rates, _CROWD_QUANTILE, method="higher")), 0.0
    for _ in range(4):
        crowd = rates[np.abs(rates - middle) <= max(_CROWD_WIDTH, 4 * noise)]
        middle = float(np.median(crowd))
        noise = 1.4826 * float(np.median(np.abs(crowd - middle)))
    return middle, noise


def _classify_pair(topology: Topology, a: str, b: str) -> int:
    one, other = topology.leaf_of.get(a), topology.leaf_of.get(b)
    if one is None or other is None:
        return UNKNOWN
    return INSIDE if one == other else ACROSS


def _find_expected_rate(result: PairResult, topology: Topology, expectations: PairExpectations) -> float | None:
    of_class = (expectations.inside, expectations.across, None)[_classify_pair(topology, result.a, result.b)]
    known = [of_class, expectations.of_node.get(result.a), expectations.of_node.get(result.b)]
    return min((value for value in known if value is not None), default=None)
