"""What sequence lengths explain of a rank's time: t ≈ a + b·tokens + c·tokens² (or Σ length²). Pure."""

from __future__ import annotations

import numpy as np

from remediator.detection.stragglers.robust_statistics import (
    MAD_TO_SIGMA,
    excess_over_others,
    median_of,
    quantiles_of,
    robust_spread,
)
from remediator.detection.stragglers.step_trace import Bools, Floats, Ints, as_slice

VARIES = 0.02  # smaller differences in length explain nothing
BETTER = 0.95  # a more complex model must leave this much less spread than a simpler one
CELLS_MAX = 20_000
ROUNDS = 8
OUTLIER_SPREADS = 2.0
LEAST_CELLS = 24
PIPELINES_ENOUGH, STAGES_MIN = 300, 3
SHARED_MIN = 0.6  # correlation from which a pipeline's stages reveal sequence lengths


def expected_length_effect(compute: Floats, tokens: Floats, squares: Floats | None, group: Ints) -> Floats:
    """Return (S, R) log of the time expected from lengths, minus that of the group's usual length.

    0 without information.

    Args:
        compute: (S, R) seconds, NaN for holes.
        tokens: (S, R), NaN for holes.
        squares: (S, R) sums of squared sequence lengths, if they were reported.
        group: (R,) peers; each group has its own model, fitted to all its ranks and steps at once, so that a slow rank
            among
            many is not taken for long sequences.
    """
    log = np.zeros_like(compute)
    for number in np.unique(group[group >= 0]):
        columns = as_slice(np.flatnonzero(group == number))
        own, length = compute[:, columns], tokens[:, columns]
        known = np.isfinite(own) & np.isfinite(length)
        more = squares[:, columns] if squares is not None else length**2
        known &= np.isfinite(more)
        if known.sum() < LEAST_CELLS:
            continue
        seconds, lengths, squared = (_cells_of(values, known) for values in (own, length, more))
        usual_length, usual_more = median_of(lengths), median_of(squared)
        low, high = (quantile / usual_length for quantile in quantiles_of(lengths, (0.05, 0.95)))
        low2, high2 = (quantile / usual_more for quantile in quantiles_of(squared, (0.05, 0.95)))
        if high - low < VARIES and high2 - low2 < VARIES:
            continue
        fitted = _fit_length_model((lengths / usual_length, squared / usual_more), seconds)
        if fitted is None:
            continue
        effect = np.log(fitted / median_of(fitted))
        if effect.size == known.size:
            log[:, columns] = effect.reshape(known.shape)
        else:
            part = np.zeros_like(own)
            part[known] = effect
            log[:, columns] = part
    return log


def _cells_of(values: Floats, known: Bools) -> Floats:
    return values.reshape(-1) if known.all() else values[known]


def _fit_length_model(lengths: tuple[Floats, Floats], seconds: Floats) -> Floats | None:
    """Return expected seconds per cell by the simplest model that explains; None if length explains nothing.

    `lengths`: per cell, tokens and their squares over the usual ones.
    """
    stride = max(1, seconds.size // CELLS_MAX)
    times = seconds[::stride]
    usual = median_of(times)
    left, best = robust_spread(np.log(times)), None
    for chosen in ([0], [1], [0, 1]):
        some = _model_terms([lengths[each][::stride] for each in chosen])
        weights = _robust_least_squares(some, times)
        guess = np.maximum(some @ weights, 0.1 * usual)
        remains = robust_spread(np.log(times / guess))
        if remains < BETTER * left:
            left, best = remains, (chosen, weights)
    if best is None:
        return None
    chosen, weights = best
    return np.maximum(_model_terms([lengths[each] for each in chosen]) @ weights, 0.1 * usual)


def _model_terms(lengths: list[Floats]) -> Floats:
    """Return one column of ones and one per length."""
    return np.asarray(np.stack([np.ones(lengths[0].size), *lengths]).T)


def _robust_least_squares(terms: Floats, seconds: Floats) -> Floats:
    """Least squares on relative errors, in which outliers count less and less (Huber)."""
    relative = np.ones(seconds.size)
    scale = seconds
    weights: Floats = np.zeros(terms.shape[1])
    least = 0.1 * median_of(seconds)
    for _ in range(ROUNDS):
        by = (np.sqrt(relative) / scale)[:, None]
        weights = np.asarray(np.linalg.lstsq(terms * by, seconds * by[:, 0], rcond=None)[0], dtype=np.float64)
        guess = np.maximum(terms @ weights, least)
        wrong = np.log(seconds / guess)
        apart = np.abs(wrong - median_of(wrong))
        far = OUTLIER_SPREADS * max(MAD_TO_SIGMA * median_of(apart), 1e-9)
        relative = np.minimum(1.0, far / np.maximum(apart, 1e-12))
        scale = guess  # relative to the true time: relative to the measured one, long cells would count less
    return weights


def pipeline_factor(residual: Floats, group: Ints, column: Ints) -> tuple[Floats, float]:
    """Return what the stages of one pipeline have in common per step, and how much of the spread that is.

    Without token counts the other stages reveal the length of a rank's sequences: they process the same ones.

    Args:
        residual: (S, R) log slowness against peers.
        group: (R,) peer group, -1 without one.
        column: (R,) which pipeline a rank belongs to, one rank a stage.

    Returns:
        (S, R) the median of the *other* groups' residuals in the column, 0 where there are fewer than two, and the
            correlation of residuals with it.
    """
    judged = np.flatnonzero(group >= 0)
    pipelines, pipeline = np.unique(column[judged], return_inverse=True)
    stages, stage = np.unique(group[judged], return_inverse=True)
    factor = np.zeros_like(residual)
    sample = max(1, pipelines.size // PIPELINES_ENOUGH)
    shared = 0.0
    for chosen in [True, False] if sample > 1 else [False]:  # a sample of pipelines decides whether to compute the rest
        taken = pipeline % sample == 0 if chosen else np.ones(pipeline.size, dtype=bool)
        place = pipeline[taken] // (sample if chosen else 1)
        steps = np.full((residual.shape[0], int(place.max(initial=0)) + 1, stages.size), np.nan)
        steps[:, place, stage[taken]] = residual[:, judged[taken]]
        flat = steps.reshape(-1, stages.size)
        others = (flat - excess_over_others(flat, STAGES_MIN)).reshape(steps.shape)
        both = np.isfinite(others)
        shared = robust_correlation(steps[both], others[both]) if both.sum() >= LEAST_CELLS else 0.0
        if shared < SHARED_MIN:
            break
        if not chosen:
            factor[:, judged] = np.nan_to_num(others[:, place, stage])
    return factor, shared


def robust_correlation(one: Floats, other: Floats) -> float:
    """Correlation of two series, with outliers clipped at four spreads. 0 where one does not vary."""
    cut = []
    for values in (one, other):
        wide = 4 * robust_spread(values)
        middle = median_of(values) if values.size else 0.0
        cut.append(np.clip(values, middle - wide, middle + wide))
    if cut[0].size < 3 or not (np.std(cut[0]) > 0 and np.std(cut[1]) > 0):
        return 0.0
    return float(np.corrcoef(cut[0], cut[1])[0, 1])
