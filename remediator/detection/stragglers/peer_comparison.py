"""Groups comparable ranks as peers, and measures how slow each rank is against them per step. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remediator.detection.stragglers.robust_statistics import (
    excess_over_others,
    known_median,
    nan_median,
    robust_spread,
    step_noise,
)
from remediator.detection.stragglers.sequence_length_model import expected_length_effect, pipeline_factor
from remediator.detection.stragglers.step_trace import UNKNOWN, Bools, Floats, Ints, StepTrace, as_slice

PEERS_MIN = 4
CENTRE_RANKS = 10_000  # enough to know what all of them do
PRESENT_SHARE = 0.5  # a step reported by fewer of the peers is not compared
SKU_SHARE, SKU_UNITS, UNIT_RANKS, SKU_GAP, SKU_GAP_NOISE, SKU_TIGHT = 0.2, 4, 8, 0.04, 8.0, 4.0


@dataclass(frozen=True)
class PeerComparison:
    """How slow each rank is.

    Attributes:
        group: (R,) number of the rank's peers (stage, role, and product where they differ), -1 for too few.
        slow: (S, R) log of own time over that of the others; NaN if unknown.
        centre: (S,) log of the job's own time against its usual one.
        load: (S, R) log of the time expected from sequence lengths.
        shared: correlation of the stages of one pipeline,
        common: and (S, R) what they have in common, which `slow` lacks; 0 where the correlation is low.
        products: (R,) 0, or 1 for the slower of two products among the same peers.
        stage_level: usual log seconds of each stage and role, by group before products were separated.
    """

    group: Ints
    slow: Floats
    centre: Floats
    load: Floats
    shared: float
    common: Floats
    products: Ints
    stage_level: dict[int, float]


def peer_groups(trace: StepTrace) -> Ints:
    """Return (R,) one number per stage and role; the pipeline rank replaces a missing stage."""
    stage = trace.codes["stage"]
    if (stage == UNKNOWN).all():
        stage = trace.places["pp_rank"]
    _, number = np.unique(pair_codes(stage, trace.codes["role"]), return_inverse=True)
    return np.asarray(number, dtype=np.int64)


def pair_codes(first: Ints, second: Ints) -> Ints:
    """Return one number per pair of two codes, none below UNKNOWN, in their order."""
    return np.asarray(first * (int(second.max(initial=UNKNOWN)) + 2) + second + 1, dtype=np.int64)


def compare_ranks(trace: StepTrace, compute: Floats, usable: Bools) -> PeerComparison:
    """Compare each rank with its peers.

    Args:
        trace: what was reported.
        compute: (S, R) seconds.
        usable: (S,) steps that count for levels; warm-up does not.
    """
    wide = peer_groups(trace)
    log = np.log(compute)
    load = np.zeros_like(log)
    if "tokens" in trace.cells or "tokens_squared" in trace.cells:
        squares = trace.cells.get("tokens_squared")
        tokens = trace.cells.get("tokens", squares)
        assert tokens is not None  # noqa: S101 - one of the two is there
        load = expected_length_effect(compute, tokens, squares, wide)
    even = log - load
    products = _gpu_product_groups(trace, even, wide, usable)
    group = wide * 2 + products
    slow = np.full_like(log, np.nan)
    for number in np.unique(group):
        columns = np.flatnonzero(group == number)
        if columns.size < PEERS_MIN:
            group[columns] = -1
            continue
        fewest = max(PEERS_MIN, int(np.ceil(PRESENT_SHARE * columns.size)))
        own = as_slice(columns)
        slow[:, own] = excess_over_others(even[:, own], fewest)
    common, shared = _shared_load(trace, slow, group)
    some = even[:, :: max(1, even.shape[1] // CENTRE_RANKS)]
    steady = some - nan_median(some, 0)[None, :]
    levels = {int(n): known_median(m) for n, m in _group_medians(log, wide, usable) if np.isfinite(m).any()}
    return PeerComparison(group, slow - common, nan_median(steady, 1), load, shared, common, products, levels)


def _group_medians(log: Floats, wide: Ints, usable: Bools) -> list[tuple[int, Floats]]:
    judged = log[usable]
    groups = ((int(number), as_slice(np.flatnonzero(wide == number))) for number in np.unique(wide))
    return [(number, nan_median(judged[:, columns], 1)) for number, columns in groups]


def _shared_load(trace: StepTrace, slow: Floats, group: Ints) -> tuple[Floats, float]:
    """Return what the stages of a pipeline have in common, if that is most of the variation, and its share of it."""
    dp, pp, tp = (trace.places[name] for name in ("dp_rank", "pp_rank", "tp_rank"))
    if (dp == UNKNOWN).any() or np.unique(group[group >= 0]).size < 3:
        return np.zeros((1, 1)), 0.0
    if (pp == UNKNOWN).all() and (trace.codes["stage"] == UNKNOWN).all():
        return np.zeros((1, 1)), 0.0
    # a rank's own level is no shared load: only changes from step to step count
    steady = nan_median(slow, 0)[None, :]
    return pipeline_factor(slow - steady, group, dp * (int(tp.max()) + 2) + tp + 1)


def _gpu_product_groups(trace: StepTrace, even: Floats, wide: Ints, usable: Bools) -> Ints:
    """Return (R,) 1 for the slower of two GPU products among peers: many ranks, far from the others, from the start.

    One node, or one tensor-parallel group, is not a product: that is what a culprit looks like.
    """
    kinds = np.zeros(wide.size, dtype=np.int64)
    rows = np.flatnonzero(usable)
    early, late = rows[: max(5, rows.size // 4)], rows[rows.size // 2 :]
    for number in np.unique(wide):
        columns = np.flatnonzero(wide == number)
        least = PEERS_MIN
        if columns.size < 2 * least or early.size < 5:
            continue
        level = nan_median(even[np.ix_(early, columns)], 0)
        if not np.isfinite(level).all():
            continue
        order = np.argsort(level, kind="stable")
        gaps = np.diff(level[order])[least - 1 : columns.size - least]
        cut = int(np.argmax(gaps)) + least
        slower = _mostly_slow_locations(trace, columns[order[cut:]], columns)
        wiggle = float(
            np.nanmedian([step_noise(even[rows, column]) for column in columns[:: max(1, columns.size // 32)]])
        )
        sure = SKU_GAP_NOISE * wiggle / np.sqrt(early.size)
        sides = level[order[:cut]], level[order[cut:]]
        tight = SKU_TIGHT * max(robust_spread(side) for side in sides)
        if gaps.max() < max(SKU_GAP, sure, tight) or not _is_product_kind(trace, slower, columns.size):
            continue
        still = nan_median(even[np.ix_(late, columns)], 0)
        if np.nanmedian(still[order[cut:]]) - np.nanmedian(still[order[:cut]]) > gaps.max() / 2:
            kinds[slower] = 1
    return kinds


def _mostly_slow_locations(trace: StepTrace, slower: Ints, columns: Ints) -> Ints:
    """Keep those of `slower` whose place is mostly slow: a slow rank among fast ones is no other product."""
    place = trace.codes["node"]
    if (place[columns] == UNKNOWN).any():
        place = tensor_parallel_groups(trace)
    if (place[columns] == UNKNOWN).any():
        return slower
    there = np.bincount(place[columns])
    return slower[2 * np.bincount(place[slower], minlength=there.size)[place[slower]] > there[place[slower]]]


def _is_product_kind(trace: StepTrace, columns: Ints, peers: int) -> bool:
    """Return whether these ranks are too many, in too many places, to be broken in the same way.

    Places are nodes or tensor-parallel groups if known; otherwise a block of ranks counts as one node.
    """
    node = trace.codes["node"][columns]
    if (node != UNKNOWN).all():
        units = np.unique(node).size
    elif ((tensor := tensor_parallel_groups(trace)[columns]) != UNKNOWN).all():
        units = np.unique(tensor).size
    else:
        block = columns.size <= UNIT_RANKS and np.ptp(trace.ranks[columns]) == columns.size - 1
        units = 1 if block else columns.size
    return units >= SKU_UNITS or (units > 1 and columns.size >= SKU_SHARE * peers)


def tensor_parallel_groups(trace: StepTrace) -> Ints:
    """Return (R,) the number of the tensor-parallel group, -1 without one."""
    dp, tp = trace.places["dp_rank"], trace.places["tp_rank"]
    stage = trace.places["pp_rank"] if (trace.places["pp_rank"] != UNKNOWN).any() else trace.codes["stage"]
    _, number, size = np.unique(pair_codes(dp, stage), return_inverse=True, return_counts=True)
    known = (dp != UNKNOWN) & (tp != UNKNOWN) & (size[number] > 1) & (size[number] < dp.size)
    return np.where(known, number, UNKNOWN)
