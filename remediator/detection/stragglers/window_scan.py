"""Finds ranks that are slow for longer than chance explains. Pure.

Steps are grouped in blocks of five, blocks in windows of 15, 30, 60 … steps that overlap by half, and each window of a
rank is compared with the same window of its peers. The spread comes from those windows themselves, so lasting noise and
ranks that naturally differ widen it. The bound holds for all windows of all ranks together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from remediator.detection.stragglers.robust_statistics import (
    binomial_tail,
    critical_spreads,
    lower_tail,
    nan_median,
    robust_spread,
    sample_known,
    surprise_probability,
    upper_spread,
)
from remediator.detection.stragglers.step_trace import Bools, Floats, Ints

BLOCK = 5
WINDOW_BLOCKS, SHORT_BLOCKS = 3, 2
SHORT_STEPS = 45  # a shorter trace is judged by windows of ten
CHANCE = 5e-3  # of any false culprit in one pass
TAIL_RANKS = 12  # among fewer, a single slow rank is the tail
EFFECT_MIN = 0.05  # smaller slowness is ignored
ABOVE_PEERS = 0.03  # a rank that only rose to its peers' level slows no other
SPREAD_FLOOR = 0.002  # precision of the clocks
POOL_ROOM = 1.3  # windows that vary more than independent blocks would are not independent
MANY_SHARE, RESTLESS_SHARE = 0.25, 0.4
ENOUGH_RANKS = 1000
SECOND_LOOK = 3.0  # weaker bound: the first test has reduced the candidates
PERSISTS = 0.4  # of the blocks of a window, each at least a third as slow as it, and of its steps, half as slow


@dataclass(frozen=True)
class SlowSuspectWindow:
    """One rank's clearest window.

    Attributes:
        column: of the rank.
        first, last: rows of the residuals, both within the window.
        slow: mean log slowness in the window.
        z: spreads above the centre.
        bound: what z had to reach.
        chance: that noise alone reaches it anywhere in this pass.
        own_past: whether it is slow against its own past rather than against its peers.
    """

    column: int
    first: int
    last: int
    slow: float
    z: float
    bound: float
    chance: float
    own_past: bool


@dataclass(frozen=True)
class ScanResult:
    """All suspects, and the slowdown (log) that would have been detected in the longest windows, by group."""

    suspects: tuple[SlowSuspectWindow, ...]
    visible: dict[int, float]
    looks: int


@dataclass
class _BestWindows:
    margin: Floats
    z: Floats
    slow: Floats
    bound: Floats
    first: Ints
    last: Ints
    own_past: Bools


@dataclass(frozen=True)
class _DetectionRule:
    looks: int
    chance: float
    least: float


@dataclass(frozen=True)
class _SpreadEstimate:
    """A spread, its number of values, and the length of their tail.

    The mean of a longer window varies no more than that of a shorter one, so each width holds for longer ones too.
    """

    sigma: float
    known: int
    tail: float
    even: Floats

    def bound(self, rule: _DetectionRule, tail: float = np.inf) -> float:
        """Return the bound that chance does not reach."""
        return self.sigma * critical_spreads(rule.chance, rule.looks, self.known, min(tail, self.tail))


def block_means(slow: Floats, rows: Ints) -> tuple[Floats, Ints]:
    """Return (B, R) trimmed means of five rows each, and (B, 5) those rows; the oldest incomplete block is left out."""
    count = rows.size // BLOCK
    taken = rows[rows.size - count * BLOCK :]
    cut = np.sort(slow[taken].reshape(count, BLOCK, -1), axis=1)
    known = np.sum(~np.isnan(cut), axis=1)
    full = np.mean(cut[:, 1:4], axis=1)
    some = np.where(known == 4, (cut[:, 1] + cut[:, 2]) / 2, np.where(known == 3, cut[:, 1], np.nan))
    some = np.where(known == 2, cut[:, 0], some)  # the lesser: beside a hole, a single outlier must not decide
    return np.where(known == 5, full, some), taken.reshape(count, BLOCK)


def scan_windows(
    slow: Floats, usable: Bools, group: Ints, least: float = EFFECT_MIN, chance: float = CHANCE
) -> ScanResult:
    """Return every rank that is slow against its peers, or against its own past and its peers.

    Args:
        slow: (S, R) log slowness, NaN for holes.
        usable: (S,) rows that count.
        group: (R,) peers; ranks of a negative group are ignored.
        least: log slowness below which no rank is named.
        chance: of a false culprit.
    """
    rows = np.flatnonzero(usable)
    blocks, members = block_means(slow, rows)
    few = rows.size < SHORT_STEPS
    shortest = SHORT_BLOCKS if few else WINDOW_BLOCKS
    count, ranks = blocks.shape
    if count < shortest:
        return ScanResult((), {}, 0)
    sizes = sorted({shortest << power for power in range(count.bit_length()) if shortest << power <= count} | {count})
    judged = int((group >= 0).sum())
    best = _empty_best(ranks)
    visible: dict[int, float] = {}
    sums, seen = _cumulative_sums(blocks)
    known: dict[tuple[bool, int], list[_SpreadEstimate]] = {}
    looks = [2 * judged * max(1, count // size) for size in sizes]  # overlapping windows count half as much again
    for size, own in zip([1, *sizes], [1, *looks], strict=True):
        window = _Window(size, np.arange(count - size, -1, -max(1, size // 2))[::-1], sums, seen)
        rule = _DetectionRule(own, chance / (2 * len(sizes)), least)
        for number in np.unique(group[group >= 0]):
            columns = np.flatnonzero(group == number)
            bound = _scan_window_size(window, blocks, columns, rule, best, known)
            visible[int(number)] = min(visible.get(int(number), np.inf), bound)
    found = [_build_suspect(best, int(column), members, sum(looks)) for column in np.flatnonzero(best.margin > 0)]
    return ScanResult(
        tuple(_lasting_suspects(slow, usable, group, found, SECOND_LOOK * chance / max(1, sum(looks)))),
        visible,
        sum(looks),
    )


def _lasting_suspects(
    slow: Floats, usable: Bools, group: Ints, found: list[SlowSuspectWindow], chance: float
) -> Iterator[SlowSuspectWindow]:
    """Keep those slow in many steps of their window, and in more than everybody's occasional slow steps explain.

    A second test without spreads: how often are the others half as slow as this, and how likely are so many such steps
    in one window by chance?
    """
    named = {each.column for each in found}
    for each in found:
        rows = slice(each.first, each.last + 1)
        own = slow[rows, each.column][usable[rows]]
        high = own[np.isfinite(own)] >= each.slow / 2
        peers = np.flatnonzero(group == group[each.column])
        others = np.array([column for column in peers if column not in named], dtype=np.int64)
        others = others if others.size >= 2 else peers[peers != each.column]
        cells = slow[np.ix_(usable, others[:: max(1, others.size // ENOUGH_RANKS)])]
        cells = cells[np.isfinite(cells)]
        usual = (float((cells >= each.slow / 2).sum()) + 0.5) / (cells.size + 1)
        if high.mean() >= PERSISTS and binomial_tail(int(high.sum()), high.size, usual) <= chance:
            yield each


def _empty_best(ranks: int) -> _BestWindows:
    margin, z, slow, bound = (np.full(ranks, -np.inf) for _ in range(4))
    first, last = (np.zeros(ranks, dtype=np.int64) for _ in range(2))
    return _BestWindows(margin, z, slow, bound, first, last, np.zeros(ranks, dtype=bool))


def _build_suspect(best: _BestWindows, column: int, members: Ints, looks: int) -> SlowSuspectWindow:
    return SlowSuspectWindow(
        column=column,
        first=int(members[best.first[column], 0]),
        last=int(members[best.last[column], -1]),
        slow=float(best.slow[column]),
        z=float(best.z[column]),
        bound=float(best.bound[column]),
        chance=surprise_probability(float(best.z[column]), looks),
        own_past=bool(best.own_past[column]),
    )


def _cumulative_sums(blocks: Floats) -> tuple[Floats, Floats]:
    zero = np.zeros((1, blocks.shape[1]))
    sums = np.concatenate([zero, np.cumsum(np.nan_to_num(blocks), axis=0)])
    return sums, np.concatenate([zero, np.cumsum(~np.isnan(blocks), axis=0)])


class _Window:
    """All windows of one size: (P, R) means, and those minus the mean of everything before, with equal spread."""

    def __init__(self, size: int, at: Ints, sums: Floats, seen: Floats) -> None:
        self.size, self.at = size, at
        known = seen[at + size] - seen[at]
        with np.errstate(invalid="ignore", divide="ignore"):
            self.mean = np.where(known * 3 >= size * 2, (sums[at + size] - sums[at]) / known, np.nan)
            before = np.where(seen[at] >= SHORT_BLOCKS, sums[at] / seen[at], np.nan)
        self.change = self.mean - before
        self.unsure = np.sqrt(1 + size / np.maximum(at, 1))[:, None]  # the shorter the past, the noisier its mean


def _scan_window_size(
    window: _Window,
    blocks: Floats,
    columns: Ints,
    rule: _DetectionRule,
    best: _BestWindows,
    known: dict[tuple[bool, int], list[_SpreadEstimate]],
) -> float:
    """Update `best` with the clearest windows of these peers; return the slowness from which they would be detected."""
    mean, visible = window.mean[:, columns], np.inf
    for own_past, values in ((False, mean), (True, window.change[:, columns])):
        if not np.isfinite(values).any():
            continue
        scale = window.unsure if own_past else np.ones_like(window.unsure)
        even = (values - nan_median(values, 1)[:, None]) / scale
        widths = known.setdefault((own_past, int(columns[0])), [])
        widths.append(_window_spread(even, window.size, widths))
        if window.size == 1:  # needed only for the spread
            continue
        bound = min(width.bound(rule) for width in widths)
        raw = even * scale
        floor = ABOVE_PEERS if own_past else rule.least
        enough = (even >= bound) & (raw >= rule.least) & (mean >= floor)
        others = ~enough.any(axis=0)
        if enough.any() and others.mean() > 1 - MANY_SHARE:  # is their upper tail as long as that of the others?
            tail = min(lower_tail(-width.even[:, others]) for width in (widths[1], widths[-1]))
            bound = max(bound, min(width.bound(rule, tail) for width in widths))
        if enough.any():
            bound = max(bound, critical_spreads(rule.chance, rule.looks, even.size) * _upper_surge_spread(even))
            enough &= even >= bound
        if not own_past:
            visible = max(bound, rule.least)
        for place in np.flatnonzero(enough.any(axis=1)):
            hit = np.flatnonzero(enough[place])
            part = blocks[window.at[place] : window.at[place] + window.size][:, columns[hit]]
            lasts = (part >= raw[place, hit] / 3).sum(axis=0) >= max(SHORT_BLOCKS, PERSISTS * window.size)
            _note_best_windows(best, columns, hit[lasts], (window, int(place), even[place] / widths[-1].sigma, bound / widths[-1].sigma),
                  own_past=own_past, mean=mean[place])  # fmt: skip
    return visible


def _upper_surge_spread(even: Floats) -> float:
    """Return the standard deviation of the calmer ranks' excess over the centre, outliers included.

    Three fifths of them: one node of three may be slow.
    """
    peak = np.nanmax(np.where(np.isfinite(even), even, -np.inf), axis=0)
    calm = even[:, np.argsort(peak)[: peak.size - int(np.ceil(RESTLESS_SHARE * peak.size))]]
    over = np.maximum(calm[np.isfinite(calm)], 0.0)
    return float(np.sqrt(2 * np.mean(over**2))) if over.size else 0.0


def _window_spread(even: Floats, size: int, before: list[_SpreadEstimate]) -> _SpreadEstimate:
    """Return how much windows of this size vary, measured, or predicted from shorter ones if they agree."""
    rows = int(np.isfinite(even).any(axis=1).sum())
    apart = max(1, rows * max(1, size // 2) // size)
    some = sample_known(even)
    wide = max(upper_spread(some) if even.shape[1] >= TAIL_RANKS else robust_spread(some), SPREAD_FLOOR)
    known = even.shape[1] * apart
    if before and wide <= POOL_ROOM * before[0].sigma / np.sqrt(size):
        wide, known = max(wide, before[0].sigma / float(np.sqrt(size))), max(known, before[0].known)
    return _SpreadEstimate(wide, known, lower_tail(some), even)


def _note_best_windows(
    best: _BestWindows,
    columns: Ints,
    hit: Ints,
    where: tuple[_Window, int, Floats, float],
    *,
    own_past: bool,
    mean: Floats,
) -> None:
    window, place, z, bound = where
    margin = z[hit] / bound
    better = margin > best.margin[columns[hit]]
    hit, margin = hit[better], margin[better]
    chosen = columns[hit]
    best.margin[chosen], best.z[chosen], best.bound[chosen] = margin, z[hit], bound
    best.slow[chosen], best.own_past[chosen] = mean[hit], own_past
    best.first[chosen], best.last[chosen] = window.at[place], window.at[place] + window.size - 1
