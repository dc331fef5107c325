"""How likely so many slow cells are where nobody is to blame."""

from __future__ import annotations

import math

# What is assumed of a fabric before anything was seen of it: one slow cell in a hundred for other reasons than ends and switches, with the
# weight of fifty cells. So three clean cells do not prove that links are never slow.
_SLOW_BEFORE, _CELLS_BEFORE = 0.5, 50.0


def estimate_background_share(slow: int, cells: int) -> float:
    """The share of slow cells to expect elsewhere, from those seen there."""
    return (slow + _SLOW_BEFORE) / (cells + _CELLS_BEFORE)


def compute_tail_chance(slow: int, cells: int, share: float) -> float:
    """The chance of `slow` or more slow cells among `cells`, each slow with chance `share`."""
    return math.fsum(math.comb(cells, k) * share**k * (1 - share) ** (cells - k) for k in range(slow, cells + 1))
