"""The probability that random noise explains the slow cells."""

from __future__ import annotations

import math

# Prior: one cell in a hundred is slow for reasons other than ends and switches, with the weight of fifty cells. So
# three clean cells do not show that links are never slow.
_SLOW_BEFORE, _CELLS_BEFORE = 0.5, 50.0


def estimate_background_share(slow: int, cells: int) -> float:
    """The expected share of slow cells elsewhere, from the observed ones."""
    return (slow + _SLOW_BEFORE) / (cells + _CELLS_BEFORE)


def compute_tail_chance(slow: int, cells: int, share: float) -> float:
    """The probability of at least `slow` slow cells among `cells`, each slow with probability `share`."""
    return math.fsum(math.comb(cells, k) * share**k * (1 - share) ** (cells - k) for k in range(slow, cells + 1))
