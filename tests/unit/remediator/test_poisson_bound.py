"""The chance of a coincidence, against the sum of what it bounds."""

from __future__ import annotations

from math import exp, factorial, inf, log10

import pytest

from remediator.decisions.poisson_bound import log10_poisson_tail


@pytest.mark.parametrize(("count", "expected"), [(3, 0.0074), (3, 0.9), (12, 0.9), (5, 4.0), (40, 10.0)])
def test_it_is_a_near_bound_from_above(count: int, expected: float) -> None:
    exactly = 1.0 - sum(exp(-expected) * expected**k / factorial(k) for k in range(count))
    found = log10_poisson_tail(count, expected)
    assert found <= 0
    if exactly > 1e-12:
        assert log10(exactly) <= found <= log10(exactly) + 0.5


def test_nothing_unusual_is_certain_and_what_cannot_be_is_never() -> None:
    assert log10_poisson_tail(0, 0.0) == log10_poisson_tail(3, 3.0) == log10_poisson_tail(3, 7.0) == 0.0
    assert log10_poisson_tail(1, 0.0) == -inf
    assert log10_poisson_tail(100_000, 10.0) < -300_000
