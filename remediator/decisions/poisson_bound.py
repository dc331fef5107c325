"""How likely it is that so many events happened by chance."""

from __future__ import annotations

from math import inf, lgamma, log


def log10_poisson_tail(count: int, expected: float) -> float:
    """Return log10 of an upper bound on the probability of `count` or more events where `expected` are usual.

    For independent events (Poisson); 0.0, which is certain, if no more happened than usual.
    """
    if count <= expected or count <= 0:
        return 0.0
    if expected <= 0:
        return -inf
    exactly = count * log(expected) - expected - lgamma(count + 1)
    and_more = log((count + 1) / (count + 1 - expected))
    return min(0.0, (exactly + and_more) / log(10))
