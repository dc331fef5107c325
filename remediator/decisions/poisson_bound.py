"""How likely is it that so many happened by chance?"""

from __future__ import annotations

from math import inf, lgamma, log


def log10_poisson_tail(count: int, expected: float) -> float:
    """The decimal logarithm of (a bound from above on) the probability of `count` or more where `expected` are usual.

    For events that are independent of each other (Poisson); 0.0, which is certain, where no more came than is usual.
    """
    if count <= expected or count <= 0:
        return 0.0
    if expected <= 0:
        return -inf
    exactly = count * log(expected) - expected - lgamma(count + 1)
    and_more = log((count + 1) / (count + 1 - expected))
    return min(0.0, (exactly + and_more) / log(10))
