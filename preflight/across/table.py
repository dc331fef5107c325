"""Which tests have something to say only once all devices have been heard: one row each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from preflight.across.collectives import collectives
from preflight.across.links import peer_links
from preflight.across.majority import majority
from preflight.checks.context import Device
from preflight.results import Result

# The results of one test, of all devices, in; the same with whatever they say together out: a failed device, a remark, one result more.
Across = Callable[[Sequence[Result], Sequence[Device]], Sequence[Result]]

TABLE: Mapping[str, Across] = {
    "matmul_repeat": majority,
    "special_functions": majority,
    "peer_links": peer_links,
    "collectives": collectives,
}


def together(
    results: Sequence[Result], devices: Sequence[Device], table: Mapping[str, Across] = TABLE
) -> tuple[Result, ...]:
    """All results of a round, each test's seen as a whole; the order of the tests stays."""
    judged: list[Result] = []
    for test in dict.fromkeys(result.test for result in results):
        of_test = [result for result in results if result.test == test]
        judged += table[test](of_test, devices) if test in table else of_test
    return tuple(judged)
