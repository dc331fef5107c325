"""The tests whose results must be compared across devices, one row each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from preflight.check_context import Device
from preflight.device_comparison.collective_results import judge_collectives
from preflight.device_comparison.link_results import judge_peer_links
from preflight.device_comparison.majority_vote import judge_by_majority
from preflight.results import Result

# All devices' results of one test in; the same results out, with the joint conclusions: a failed device, a remark, an
# extra result.
Across = Callable[[Sequence[Result], Sequence[Device]], Sequence[Result]]

TABLE: Mapping[str, Across] = {
    "matmul_repeat": judge_by_majority,
    "special_functions": judge_by_majority,
    "peer_links": judge_peer_links,
    "collectives": judge_collectives,
}


def judge_across_devices(
    results: Sequence[Result], devices: Sequence[Device], table: Mapping[str, Across] = TABLE
) -> tuple[Result, ...]:
    """Compare the results of each test across devices; the order of the tests stays."""
    judged: list[Result] = []
    for test in dict.fromkeys(result.test for result in results):
        of_test = [result for result in results if result.test == test]
        judged += table[test](of_test, devices) if test in table else of_test
    return tuple(judged)
