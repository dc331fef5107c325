from __future__ import annotations

from collections.abc import Callable

import pytest

from preflight.check_context import Device
from preflight.device_comparison.link_results import judge_peer_links
from preflight.results import Outcome, Result

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("links")]
Run = Callable[..., list[Result]]


def devices(count: int) -> tuple[Device, ...]:
    return tuple(Device(name=f"cpu:{n}", torch_name="cpu", index=n, label="host memory") for n in range(count))


def judged(ranks: Run, count: int, faults: dict[int, str] | None = None) -> dict[str, Result]:
    return {r.device: r for r in judge_peer_links(ranks("peer_links", count, faults), devices(count))}


def failed(results: dict[str, Result]) -> set[str]:
    assert {r.outcome for r in results.values()} <= {Outcome.PASS, Outcome.FAIL}, results
    return {name for name, result in results.items() if result.outcome is Outcome.FAIL}


def test_clean_links_pass_and_every_directed_pair_has_its_rate(ranks: Run) -> None:
    results = judged(ranks, 3)
    assert not failed(results)
    settings = {figure.setting for result in results.values() for figure in result.figures}
    names = [f"cpu:{n}" for n in range(3)]
    assert {f"host, {a} to {b}" for a in names for b in names if a != b} <= settings
    assert all(figure.value > 0 for result in results.values() for figure in result.figures)


def test_who_spoils_data_with_all_partners_is_named_alone(ranks: Run) -> None:
    results = judged(ranks, 3, {1: "corrupt"})
    assert failed(results) == {"cpu:1"}
    assert "2 of its 2 pairs" in results["cpu:1"].reason
    assert "0x0000000000200000" in results["cpu:1"].reason, "the wrong bit is said"


def test_of_two_devices_neither_is_named_alone(ranks: Run) -> None:
    results = judged(ranks, 2, {1: "corrupt"})
    assert failed(results) == {"cpu:0", "cpu:1"}
    assert "between cpu:0 and cpu:1 (a single pair cannot tell which)" in results["cpu:0"].reason


@pytest.mark.parametrize(
    ("fault", "words"), [("slow_device", "slow between cpu:0 and cpu:1"), ("slow_link", "slow from cpu:1 to cpu:0")]
)
def test_two_devices_slow_with_each_other_fail_as_a_pair(ranks: Run, fault: str, words: str) -> None:
    results = judged(ranks, 2, {1: fault})
    assert failed(results) == {"cpu:0", "cpu:1"}
    assert words in results["cpu:0"].reason


def test_a_link_slow_again_and_again_is_told_from_its_ends(ranks: Run) -> None:
    results = judged(ranks, 4, {3: "slow_link"})
    assert failed(results) == {"cpu:2", "cpu:3"}
    assert "the link between cpu:2 and cpu:3 is slow" in results["cpu:3"].reason
    assert {location.peer for location in results["cpu:3"].locations} == {"cpu:2"}


def test_an_nvlink_that_is_down_is_named_with_its_number(ranks: Run) -> None:
    results = judged(ranks, 2, {1: "nvlink_down"})
    assert failed(results) == {"cpu:1"}
    assert results["cpu:1"].reason == "17 of 18 NVLinks are up; NVLink 17 is down"
    assert results["cpu:1"].locations[0].link == 17


def test_one_device_alone_has_no_peer(ranks: Run) -> None:
    assert [r.outcome for r in ranks("peer_links", 1)] == [Outcome.NOT_APPLICABLE]


def test_a_silent_device_is_the_one_that_announced_least(hanging: Callable[..., list[list[str]]]) -> None:
    waiting = {0: "round 1: data to and from cpu:1"}
    first, silent = hanging("peer_links", 2, {1: "silent"}, waiting)
    assert len(silent) == len(first) - 1, "who announced least is who the others wait for"


def test_of_a_pair_that_hangs_nobody_else_is_accused(hanging: Callable[..., list[list[str]]]) -> None:
    waiting = {0: "round 1", 1: "round 1", 2: "round 1", 3: "reading its NVLinks"}
    notes = hanging("peer_links", 4, {3: "silent"}, waiting)
    assert min(range(4), key=lambda rank: len(notes[rank])) == 3
