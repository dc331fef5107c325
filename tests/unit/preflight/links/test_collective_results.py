from __future__ import annotations

from collections.abc import Callable

import pytest

from preflight.check_context import Device
from preflight.device_comparison.collective_results import judge_collectives
from preflight.results import Outcome, Result

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("links")]
Run = Callable[..., list[Result]]


def devices(count: int) -> tuple[Device, ...]:
    return tuple(Device(name=f"cpu:{n}", torch_name="cpu", index=n, label="host memory") for n in range(count))


def failed(ranks: Run, count: int, faults: dict[int, str] | None = None) -> dict[str, str]:
    results = judge_collectives(ranks("collectives", count, faults), devices(count))
    assert {r.outcome for r in results} <= {Outcome.PASS, Outcome.FAIL}, results
    return {r.device: r.reason for r in results if r.outcome is Outcome.FAIL}


@pytest.mark.parametrize("count", [2, 3])
def test_clean_collectives_are_right_and_each_has_its_rate(ranks: Run, count: int) -> None:
    results = judge_collectives(ranks("collectives", count), devices(count))
    assert [r.outcome for r in results] == [Outcome.PASS] * count, results
    settings = {f.setting.split(",")[0] for f in results[0].figures if f.name == "bus_rate"}
    assert settings == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
    assert any(f.name == "collective_latency" and f.unit == "us" for f in results[0].figures)
    assert f"{count} ranks" in results[0].figures[0].setting


@pytest.mark.parametrize(("count", "culprit"), [(2, 1), (3, 0)])
def test_who_gives_wrong_bits_is_named_alone(ranks: Run, count: int, culprit: int) -> None:
    found = failed(ranks, count, {culprit: "wrong_sum"})
    assert set(found) == {f"cpu:{culprit}"}
    assert f"its contribution was wrong on {count} of {count} devices" in found[f"cpu:{culprit}"]


def test_a_bit_that_is_wrong_in_every_sum_names_nobody(ranks: Run) -> None:
    everywhere = judge_collectives(ranks("collectives", 2, {0: "stuck_bit", 1: "stuck_bit"}), devices(2))
    assert [r.outcome for r in everywhere] == [Outcome.ERROR, Outcome.ERROR]
    assert "or are too few to name a device" in everywhere[0].reason
    assert not any(r.locations for r in everywhere)
    here = judge_collectives(ranks("collectives", 3, {2: "stuck_bit"}), devices(3))
    assert [r.outcome for r in here] == [Outcome.PASS, Outcome.PASS, Outcome.ERROR]


def test_who_comes_late_is_named_alone(ranks: Run) -> None:
    found = failed(ranks, 2, {1: "late_rank"})
    assert set(found) == {"cpu:1"}
    assert "it is late" in found["cpu:1"]


def test_a_slow_collective_fails_without_a_name(ranks: Run) -> None:
    found = failed(ranks, 2, {1: "slow"})
    assert set(found) == {"cpu:0", "cpu:1"}
    assert "all devices wait for the slowest" in found["cpu:0"]


def test_one_device_alone_reduces_with_nobody(ranks: Run) -> None:
    assert [r.outcome for r in ranks("collectives", 1)] == [Outcome.NOT_APPLICABLE]
