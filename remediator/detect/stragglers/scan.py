"""Which ranks are slow for long enough that chance does not explain it. Pure.

Steps are cut into blocks of five, blocks are joined to windows of 15, 30, 60 … steps that overlap by half, and each
window of each rank is compared with the same windows of its peers. The spread comes from those windows themselves, so
noise that lasts, and ranks that differ by nature, widen it. The bound is set for all windows of all ranks at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remediator.detect.stragglers.robust import critical, lower_tail, median, spread, surprise, upper_spread
from remediator.detect.stragglers.trace import Bools, Floats, Ints

BLOCK = 5
WINDOW_BLOCKS, SHORT_BLOCKS = 3, 2
SHORT_STEPS = 45  # a trace with fewer is judged by windows of ten
CHANCE = 1e-3  # of any false name in one pass
TAIL_RANKS = 12  # among fewer a single slow one is the tail
EFFECT_MIN = 0.05  # what is less slow is not worth a name
ABOVE_PEERS = 0.03  # one that only came up to its peers slows nobody
SPREAD_FLOOR = 0.002  # clocks are no better
PERSISTS = 0.4  # of the blocks of a window, each at least a third as slow as the window


@dataclass(frozen=True)
class Suspect:
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
class Scan:
    """All suspects, and the slowdown (log) that would have been seen in the longest windows, by group."""

    suspects: tuple[Suspect, ...]
    visible: dict[int, float]
    looks: int


@dataclass
class _Best:
    margin: Floats
    z: Floats
    slow: Floats
    bound: Floats
    first: Ints
    last: Ints
    own_past: Bools


def blocks_of(slow: Floats, rows: Ints) -> tuple[Floats, Ints]:
    """(B, R) trimmed means of five rows each, and (B, 5) those rows; the oldest ones that fill no block are left out."""
    count = rows.size // BLOCK
    taken = rows[rows.size - count * BLOCK :]
    cut = np.sort(slow[taken].reshape(count, BLOCK, -1), axis=1)
    known = np.sum(~np.isnan(cut), axis=1)
    full = np.mean(cut[:, 1:4], axis=1)
    some = np.where(known == 4, (cut[:, 1] + cut[:, 2]) / 2, np.where(known == 3, cut[:, 1], np.nan))
    return np.where(known == 5, full, some), taken.reshape(count, BLOCK)


def scan(slow: Floats, usable: Bools, group: Ints, least: float = EFFECT_MIN, chance: float = CHANCE) -> Scan:
    """Every rank that is slow against its peers, or against its own past and its peers.

    Args:
        slow: (S, R) log slowness, NaN for holes.
        usable: (S,) rows that count.
        group: (R,) peers; ranks of a negative group are passed over.
        least: log slowness below which nobody is named.
        chance: of a false name.
    """
    rows = np.flatnonzero(usable)
    blocks, members = blocks_of(slow, rows)
    few = rows.size < SHORT_STEPS
    shortest = SHORT_BLOCKS if few else WINDOW_BLOCKS
    count, ranks = blocks.shape
    if count < shortest:
        return Scan((), {}, 0)
    sizes = []
    size = shortest
    while size <= count:
        sizes.append(size)
        size *= 2
    judged = int((group >= 0).sum())
    looks = max(1, 2 * judged * sum(max(1, count // size) * 2 for size in sizes))
    best = _nothing(ranks)
    visible: dict[int, float] = {}
    sums, seen = _running(blocks)
    limits: dict[tuple[int, int], float] = {}
    for size in [1, *sizes]:
        window = _Window(size, np.arange(count - size, -1, -max(1, size // 2))[::-1], sums, seen, limits)
        for number in np.unique(group[group >= 0]):
            columns = np.flatnonzero(group == number)
            _look(window, blocks, columns, (looks, chance, least), best)
            visible[int(number)] = min(visible.get(int(number), np.inf), window.bound)
    suspects = tuple(_suspect(best, int(column), members, looks) for column in np.flatnonzero(best.margin > 0))
    return Scan(suspects, visible, looks)


def _nothing(ranks: int) -> _Best:
    margin, z, slow, bound = (np.full(ranks, -np.inf) for _ in range(4))
    first, last = (np.zeros(ranks, dtype=np.int64) for _ in range(2))
    return _Best(margin, z, slow, bound, first, last, np.zeros(ranks, dtype=bool))


def _suspect(best: _Best, column: int, members: Ints, looks: int) -> Suspect:
    return Suspect(
        column=column,
        first=int(members[best.first[column], 0]),
        last=int(members[best.last[column], -1]),
        slow=float(best.slow[column]),
        z=float(best.z[column]),
        bound=float(best.bound[column]),
        chance=surprise(float(best.z[column]), looks),
        own_past=bool(best.own_past[column]),
    )


def _running(blocks: Floats) -> tuple[Floats, Floats]:
    zero = np.zeros((1, blocks.shape[1]))
    sums = np.concatenate([zero, np.cumsum(np.nan_to_num(blocks), axis=0)])
    return sums, np.concatenate([zero, np.cumsum(~np.isnan(blocks), axis=0)])


class _Window:
    """All windows of one size."""

    def __init__(self, size: int, at: Ints, sums: Floats, seen: Floats, limits: dict[tuple[int, int], float]) -> None:
        self.size, self.at, self.limits = size, at, limits
        known = seen[at + size] - seen[at]
        with np.errstate(invalid="ignore", divide="ignore"):
            self.mean = np.where(known * 3 >= size * 2, (sums[at + size] - sums[at]) / known, np.nan)
            before = np.where(seen[at] >= SHORT_BLOCKS, sums[at] / seen[at], np.nan)
        self.change = self.mean - before
        self.bound = np.inf


def _look(window: _Window, blocks: Floats, columns: Ints, rule: tuple[int, float, float], best: _Best) -> None:
    looks, chance, least = rule
    at, size = window.at, window.size
    mean = window.mean[:, columns]
    for own_past, values in ((False, mean), (True, window.change[:, columns])):
        if not np.isfinite(values).any():
            continue
        values = values - median(values, 1)[:, None]  # noqa: PLW2901 - the same, centred
        apart = max(1, int(np.isfinite(values).any(axis=1).sum()) * max(1, size // 2) // size)
        wide = max(upper_spread(values) if columns.size >= TAIL_RANKS else spread(values), SPREAD_FLOOR)
        bound = critical(chance, looks, columns.size * apart, lower_tail(values))
        # The mean of a longer window wanders no further than that of a shorter one, whose spread is better known.
        key = int(own_past), int(columns[0])
        limit = min(bound * wide, window.limits.get(key, np.inf))
        window.limits[key] = limit
        bound = limit / wide
        if not own_past:
            window.bound = max(bound * wide, least)
        z = values / wide
        if size == 1:  # only to know the spread
            continue
        enough = (z >= bound) & (values >= least) & (mean >= (ABOVE_PEERS if own_past else least))
        for place in np.flatnonzero(enough.any(axis=1)):
            hit = np.flatnonzero(enough[place])
            part = blocks[at[place] : at[place] + size][:, columns[hit]]
            lasts = (part >= values[place, hit] / 3).sum(axis=0) >= max(SHORT_BLOCKS, PERSISTS * size)
            hit = hit[lasts]
            margin = z[place, hit] / bound
            better = margin > best.margin[columns[hit]]
            hit, margin = hit[better], margin[better]
            chosen = columns[hit]
            best.margin[chosen], best.z[chosen], best.bound[chosen] = margin, z[place, hit], bound
            best.slow[chosen], best.own_past[chosen] = mean[place, hit], own_past
            best.first[chosen], best.last[chosen] = at[place], at[place] + size - 1
