from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from preflight.check_context import Device
from preflight.checks.nvlink_state import NvLink, NvLinkReader, NvLinks, judge_nvlinks
from preflight.results import Outcome

Say = Callable[[Sequence[str]], None]
GPUS = tuple(
    Device(name=f"cuda:{n}", torch_name="cuda:0", index=n, label="", uuid=f"GPU-fake-{n:04}") for n in range(8)
)


def links_of(number: int) -> NvLinkReader:
    return NvLinkReader(GPUS[number], GPUS, lambda _: None)


def healthy(up: int = 18, **counters: int) -> NvLinks:
    links = tuple(NvLink(number=n, up=n < up, counters=counters) for n in range(18))
    return NvLinks(links=links, fabric_state=3, fabric_status=0)


def test_the_driver_tells_of_every_link(driver_says: Say) -> None:
    states = ["nvlink_active.5.3 0", "nvlink_active.6.3 3", "nvlink_active.7.3 2"]  # down, without traffic, asleep
    driver_says([*states, "nvlink_crc.2.3 70", "nvlink_speed_mbps 26562"])
    seen = links_of(3).read()
    assert [link.number for link in seen.links if not link.up] == [5, 6]
    assert len(seen.links) == 18
    assert seen.links[2].counters == {"crc": 70, "replays": 0, "recoveries": 0}
    assert (seen.fabric_state, seen.fabric_status) == (3, 0)
    assert seen.link_gb_s == pytest.approx(26.562)


def test_a_link_that_goes_down_during_the_test_is_named(driver_says: Say) -> None:
    links = links_of(3)
    before = links.read()
    driver_says(["nvlink_active.5.3 0"])
    (result,) = links.judged(before, links.read(), 2.0, "")
    assert result.outcome is Outcome.FAIL
    assert result.reason == "17 of 18 NVLinks are up; NVLink 5 went down during the test"
    assert [(where.gpu, where.link) for where in result.locations] == [("cuda:3", 5)]
    assert (result.evidence["nvlink_links"], result.evidence["nvlinks_up"]) == (18, 17)


def test_what_traffic_adds_to_a_counter_counts_and_what_was_there_does_not(driver_says: Say) -> None:
    driver_says(["nvlink_replays 1000", "nvlink_recoveries 3"])
    links = links_of(0)
    before = links.read()
    driver_says(["nvlink_replays 1000", "nvlink_recoveries 3", "nvlink_replays.7.0 1011", "nvlink_recoveries.8.0 4"])
    (result,) = links.judged(before, links.read(), 2.0, "")
    assert result.reason == (
        "NVLink 7 has 11 replays more after the test, 10 allowed; NVLink 8 has 1 recoveries more after the test, 0 allowed"
    )
    assert not [r for r in links.judged(before, before, 2.0, "") if r.outcome is not Outcome.PASS]


def test_a_gpu_that_has_not_joined_its_fabric_fails(driver_says: Say) -> None:
    driver_says(["fabric_state 2"])
    links = links_of(0)
    (result,) = links.judged(links.read(), links.read(), 2.0, "")
    assert result.outcome is Outcome.FAIL
    assert "has not joined its NVLink fabric" in result.reason


def test_where_there_is_no_nvlink_there_is_nothing_to_say(driver_says: Say) -> None:
    driver_says(["nvlinks 0", "fabric_state 0"])
    links = links_of(0)
    assert links.medium(GPUS[1]) == "pcie"
    assert not list(links.judged(links.read(), links.read(), 2.0, ""))


def test_gpus_that_reach_each_other_over_nvlink(driver_says: Say) -> None:
    assert links_of(0).medium(GPUS[1]) == "nvlink"


def test_the_host_has_no_links_and_asks_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEALTHD_NVML_LIBRARY", "/nowhere/libnvidia-ml.so.1")
    host = Device(name="cpu:0", torch_name="cpu", index=0, label="")
    assert NvLinkReader(host, (host,), lambda _: None).read() == NvLinks()


def test_without_a_fabric_a_link_may_be_down_by_design() -> None:
    bridged = NvLinks(links=tuple(NvLink(number=n, up=n < 4) for n in range(12)))
    result = judge_nvlinks("cuda:0", bridged, bridged, 1.0)
    assert result
    assert result.outcome is Outcome.PASS
    assert result.evidence["nvlinks_up"] == 4


def test_a_link_that_does_not_say_is_no_link_that_is_down() -> None:
    silent = NvLinks(links=(NvLink(number=0, up=None), NvLink(number=1, up=True)), fabric_state=3, fabric_status=0)
    result = judge_nvlinks("cuda:0", silent, silent, 1.0)
    assert result
    assert result.outcome is Outcome.PASS
    assert result.remarks == ("the driver does not say whether 1 of 2 NVLinks are up",)


def test_a_link_that_vanishes_is_missed() -> None:
    after = NvLinks(links=healthy().links[:17], fabric_state=3, fabric_status=0)
    result = judge_nvlinks("cuda:0", healthy(), after, 1.0)
    assert result
    assert result.reason == "17 of 18 NVLinks are up; NVLink 17 no longer answers"
