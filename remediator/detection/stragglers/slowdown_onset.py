"""Finds the steps at which a series was slow and the first of them, as exactly as its noise allows. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remediator.detection.stragglers.robust_statistics import nan_median, step_noise
from remediator.detection.stragglers.step_trace import Bools, Floats, Ints

WARM_UP, WARM_UP_SHORT = 16, 10
EVIDENCE_MAX = 6.0  # limit of a single step (log odds): one outlier starts nothing
SWITCH = 6.0  # log odds against a change at any one step
RUN_MIN, RUN_KEPT = 5, 3
RUN_SPREADS = 5.0
GLOBAL_MIN = float(np.log(1.05))
GLOBAL_CLEAR = 3.0  # spreads of medians of five steps around the levels before and after
GLOBAL_STEPS = 15
RAMP_BETTER = 0.85  # a slope must leave this much less error than a jump
RAMP_GRID = 48


@dataclass(frozen=True)
class SlowInterval:
    """When one series was slow.

    Attributes:
        rows: (S,) true where it was.
        first: row of the first such step.
        level: median log slowness over those rows, against the rows before or beside them.
        share: share of slow steps from the first slow one on.
        grows: it rose gradually, not in a jump.
    """

    rows: Bools
    first: int
    level: float
    share: float
    grows: bool


def usable_steps(began: Bools) -> Bools:
    """Return (S,) false for steps after each start, which compile and fill caches: 16, fewer in a short trace."""
    count = began.size
    cold = WARM_UP if count >= 4 * WARM_UP else WARM_UP_SHORT if count >= 3 * WARM_UP_SHORT else count // 3
    usable = np.ones(count, dtype=bool)
    for start in np.flatnonzero(began):
        usable[start : start + cold] = False
    return usable if usable.sum() >= min(count, 10) else np.arange(count) >= cold


def find_slow_interval(
    series: Floats, first: int, last: int, level: float, usable: Bools, *, own_past: bool, rough: Floats | None = None
) -> SlowInterval:
    """Find the steps at which a series that is slow between two rows was slow.

    Args:
        series: (S,) log slowness, NaN for holes.
        first: first row of a window that was found slow,
        last: and its last row.
        level: mean log slowness within it.
        usable: (S,) rows past a warm-up; a run that ends before them was one.
        own_past: the usual level is the series' own, not that of its peers.
        rough: (S,) spread among the peers at each step, which is wide during warm-up.
    """
    usual = _usual_level(series, first) if own_past else 0.0
    wide = np.full(series.size, max(step_noise(series), 0.002, 0.05 * abs(level)))
    if rough is not None:
        wide = np.where(usable, wide, np.maximum(wide, np.nan_to_num(rough)))
    slow = np.zeros(series.size, dtype=bool)
    for _ in range(3):
        slow = _two_state_path(series - usual, level - usual, wide)
        slow = _drop_chance_runs(series, slow, usable, (first, last))
        if not slow.any():  # never for long: take the steps that make its window slow, otherwise all of them
            high = np.nan_to_num(series[first : last + 1] - usual) >= (level - usual) / 2
            slow[first : last + 1] = high | ~high.any()
            break
        level = float(np.nanmedian(series[slow])) if np.isfinite(series[slow]).any() else level
        rest = series[usable & ~slow]
        if np.isfinite(rest).sum() >= 2 * RUN_MIN:
            usual = float(np.nanmedian(rest))
    start = int(np.flatnonzero(slow & np.isfinite(series))[0])
    ramp = _slope_start_row(np.where(usable, series - usual, np.nan), start, _run_end(slow, start))
    grows = ramp is not None
    start = start if ramp is None else ramp
    after = np.flatnonzero(usable)
    after = after[after >= start]
    share = float(slow[after].mean()) if after.size else 1.0
    known = series[slow & np.isfinite(series)]
    against = usual if own_past else min(usual, 0.0) if has_usual_steps(series, slow, usable) else 0.0
    height = float(np.median(known)) - against if known.size else level
    return SlowInterval(slow, start, height, share, grows)


def has_usual_steps(series: Floats, slow: Bools, usable: Bools) -> bool:
    """Return whether enough steps are left at which it was not slow."""
    return bool(np.isfinite(series[usable & ~slow]).sum() >= 2 * RUN_MIN)


def _usual_level(series: Floats, first: int) -> float:
    before = series[:first]
    before = before[np.isfinite(before)]
    return float(np.median(before)) if before.size else 0.0


def _two_state_path(series: Floats, level: float, wide: Floats) -> Bools:
    """Return the likeliest path between the states usual (0) and slow (`level`), which rarely change (Viterbi)."""
    said = np.nan_to_num((series - level / 2) * level / wide**2, nan=0.0)
    said = np.clip(said, -EVIDENCE_MAX, EVIDENCE_MAX)
    usual, slow = 0.0, 0.0
    came = np.zeros((series.size, 2), dtype=bool)  # from the other state
    for row, odds in enumerate(said.tolist()):
        from_slow, from_usual = slow - SWITCH, usual - SWITCH
        came[row] = from_slow > usual, from_usual > slow
        usual, slow = max(usual, from_slow), max(slow, from_usual) + odds
    states = np.zeros(series.size, dtype=bool)
    state = slow > usual
    for row in range(series.size - 1, -1, -1):
        states[row] = state
        if came[row, int(state)]:
            state = not state
    return states


def true_runs(mask: Bools) -> list[tuple[int, int]]:
    """Return the first and last row of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _drop_chance_runs(series: Floats, slow: Bools, usable: Bools, window: tuple[int, int]) -> Bools:
    """Drop runs that are too short, or no slower than chance explains, outliers included."""
    kept: Bools = slow.copy()
    rest = series[usable & ~slow]
    rest = rest[np.isfinite(rest)]
    usual, wild = (float(rest.mean()), float(rest.std())) if rest.size >= 2 * RUN_MIN else (0.0, 0.0)
    for start, end in true_runs(slow):
        own = series[start : end + 1]
        own = own[np.isfinite(own)]
        short = end - start + 1 < RUN_KEPT or usable[start : end + 1].sum() < min(RUN_KEPT, usable.sum())
        aside = end < window[0] or start > window[1]
        chance = aside and own.mean() - usual < RUN_SPREADS * wild / np.sqrt(own.size) if own.size else True
        if short or chance:
            kept[start : end + 1] = False
    return kept


def _run_end(slow: Bools, start: int) -> int:
    return next((end for begin, end in true_runs(slow) if begin <= start <= end), start)


def _slope_start_row(series: Floats, start: int, end: int) -> int | None:
    """Return where a gradual slowdown began; None if it jumped.

    Both models are fitted up to the end of the first slow run: 0 and then a level, or 0, a straight line and then a
    level.
    """
    known = np.flatnonzero(np.isfinite(series[: end + 1]))
    if end - start < 3 * RUN_MIN or known.size < 4 * RUN_MIN:
        return None
    at = known.astype(np.float64)
    values = series[known]
    wide = 4 * max(step_noise(values), 0.002)
    smooth = np.clip(
        values, nan_median(_neighbour_windows(values), 1) - wide, nan_median(_neighbour_windows(values), 1) + wide
    )
    jump = np.where(at >= start, np.median(smooth[at >= start]), 0.0)
    low = max(0, start - 2 * (end - start))
    begins = np.unique(np.linspace(low, end - RUN_MIN, RAMP_GRID).astype(int))
    flats = [np.unique(np.linspace(each + RUN_MIN, end, RAMP_GRID // 2).astype(int)) for each in begins]
    places = np.column_stack([np.repeat(begins, [each.size for each in flats]), np.concatenate(flats)])
    shapes = np.clip((at[None, :] - places[:, :1]) / (places[:, 1:] - places[:, :1]), 0.0, 1.0)
    height = shapes @ smooth / np.maximum(np.sum(shapes**2, axis=1), 1e-12)
    left = np.where(height > 0, np.sum((smooth - height[:, None] * shapes) ** 2, axis=1), np.inf)
    best = places[left.argmin()].tolist() if left.min() < RAMP_BETTER * float(np.sum((smooth - jump) ** 2)) else None
    if best is None or best[1] - best[0] < 2 * RUN_MIN:
        return None
    return min(best[0] + 1, start) if best[0] < start else start


def _neighbour_windows(values: Floats) -> Floats:
    padded = np.pad(values, 2, mode="edge")
    return np.stack([padded[k : padded.size - 4 + k] for k in range(5)], axis=1)


def find_global_slowdown(
    centre: Floats, usable: Bools, least: float = GLOBAL_MIN, clear: float = GLOBAL_CLEAR
) -> SlowInterval | None:
    """Return when a series, such as that of the whole job, rose by more than `least` for at least 15 steps; None if never.

    Args:
        centre: (S,) log of the job's time against its usual one.
        usable: (S,) rows that count.
        least: log slowness; a twentieth unless given.
        clear: how many spreads of the series the rise must be; those of medians of five steps, before and after it.

    A few slow steps in a row are an evaluation or a checkpoint, and a series that wanders rises by itself now and then.
    """
    rows: Ints = np.flatnonzero(usable & np.isfinite(centre))
    if rows.size < 2 * GLOBAL_STEPS:
        return None
    calm = nan_median(_neighbour_windows(centre[rows]), 1)
    calm = nan_median(_neighbour_windows(calm), 1)
    found: tuple[float, int] | None = None
    after = np.quantile(np.lib.stride_tricks.sliding_window_view(calm, GLOBAL_STEPS), 0.2, axis=1)
    for place in np.flatnonzero(after - calm.min() > least / 2).tolist():
        rise = float(after[place] - np.median(calm[max(0, place - 200) : place])) if place >= 2 * RUN_MIN else 0.0
        if rise > (found[0] if found else least / 2):
            found = rise, place
    if found is None:
        return None
    rise, place = found
    usual = float(np.median(calm[max(0, place - 200) : place]))
    first, last = int(rows[place]), int(rows[min(place + GLOBAL_STEPS, rows.size) - 1])
    seen = find_slow_interval(centre, first, last, usual + rise, usable, own_past=True)
    lasts = seen.level > least and seen.rows[usable].sum() >= GLOBAL_STEPS
    return seen if lasts and _rise_in_spreads(centre, seen, usable) >= clear else None


def _rise_in_spreads(series: Floats, seen: SlowInterval, usable: Bools) -> float:
    known = usable & np.isfinite(series)
    parts = series[known & ~seen.rows], series[known & seen.rows]
    if min(part.size for part in parts) < RUN_MIN:
        return 0.0
    rise = float(np.median(parts[1]) - np.median(parts[0]))
    left = [nan_median(_neighbour_windows(part)[2:-2], 1) - np.median(part) for part in parts]
    return rise / max(float(np.concatenate(left).std()), 1e-3)
