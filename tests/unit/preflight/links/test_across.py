from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.check_context import Device
from preflight.device_comparison.link_results import judge_peer_links, plan_next_pairs
from preflight.device_comparison.nvlink_shortfall import MeasuredPath, find_gpus_off_nvlink, find_missing_nvlinks
from preflight.device_comparison.pair_culprits import find_pair_culprits
from preflight.fault_localisation.localisation_records import PairResult
from preflight.fault_localisation.pair_rounds import plan_pair_rounds
from preflight.results import Figure, Location, Outcome, Result

NAMES = [f"cuda:{n}" for n in range(8)]
DEVICES = tuple(Device(name=name, torch_name=name, index=n, label="GPU") for n, name in enumerate(NAMES))
Rate = Callable[[str, str], float]


def measured(names: list[str], rate: Rate, medium: str = "nvlink", both: float = 0.9) -> list[Result]:
    """What the devices would say, with the confirmations that they would ask of each other."""
    results: list[Result] = []
    pairs: list[PairResult] = []
    plan = plan_pair_rounds(names, {}, len(names), 1)
    for number in range(1, len(plan) + 5):
        met = plan[number - 1] if number <= len(plan) else plan_next_pairs(pairs, names, medium)
        for a, b in met:
            pairs.append(PairResult(number, a, b, None, min(rate(a, b), rate(b, a))))
            results += [one_way(number, a, b, rate, medium, both), one_way(number, b, a, rate, medium, both)]
    return results


def one_way(number: int, sender: str, receiver: str, rate: Rate, medium: str, both: float) -> Result:
    value = rate(sender, receiver) * (1 + 0.002 * ((number * 7 + ord(sender[-1]) * 3 + ord(receiver[-1])) % 5 - 2))
    return Result(
        test="peer_links",
        outcome=Outcome.PASS,
        device=receiver,
        figures=(
            Figure(name="pair_rate", value=value, unit="GB/s", setting=medium),
            Figure(name="pair_rate", value=value * both, unit="GB/s", setting=f"{medium}, both ways"),
        ),
        locations=(Location(gpu=receiver, peer=sender),),
        evidence={"round": number},
    )


def alike(rate: float) -> Rate:
    return lambda _sender, _receiver: rate


def failed(results: list[Result]) -> dict[str, str]:
    assert {r.outcome for r in results} <= {Outcome.PASS, Outcome.FAIL}, results
    return {r.device: r.reason for r in results if r.outcome is Outcome.FAIL}


def test_equal_pairs_accuse_nobody() -> None:
    results = judge_peer_links(measured(NAMES, alike(380.0)), DEVICES)
    assert [r.device for r in results] == NAMES
    assert not failed(results)
    assert results[0].figures[0].setting == "nvlink"
    assert results[0].figures[0].value == pytest.approx(380, rel=0.01)


@pytest.mark.parametrize("culprit", NAMES)
def test_one_dead_nvlink_of_18_names_its_gpu(culprit: str) -> None:
    results = judge_peer_links(measured(NAMES, lambda a, b: 380 * (17 / 18 if culprit in (a, b) else 1)), DEVICES)
    assert list(failed(results)) == [culprit]
    assert "it is slow: at best 9" in failed(results)[culprit]


def test_a_slow_device_fails_by_a_limit_and_wrong_data_by_itself() -> None:
    slow = measured(NAMES, lambda a, b: 380 * (17 / 18 if "cuda:3" in (a, b) else 1))
    assert judge_peer_links(slow, DEVICES)[3].by_limit
    wrong = [
        msgspec.structs.replace(r, outcome=Outcome.FAIL, reason="1 wrong word") if r.device == "cuda:3" else r
        for r in slow
    ]
    found = judge_peer_links(wrong, DEVICES)[3]
    assert (found.outcome, found.by_limit) == (Outcome.FAIL, False)


def test_a_slow_way_of_one_pair_names_the_link_at_both_ends() -> None:
    results = judge_peer_links(
        measured(NAMES, lambda a, b: 200.0 if (a, b) == ("cuda:2", "cuda:6") else 380.0), DEVICES
    )
    assert set(failed(results)) == {"cuda:2", "cuda:6"}
    assert "the link between cuda:2 and cuda:6 is slow" in failed(results)["cuda:6"]


def test_a_slow_pair_that_was_not_looked_at_again_is_undecided() -> None:
    once = measured(NAMES, lambda a, b: 200.0 if {a, b} == {"cuda:2", "cuda:6"} else 380.0)
    first = [r for r in once if int(r.evidence["round"]) <= 7]
    ends = {r.device: r for r in judge_peer_links(first, DEVICES)}
    assert {name for name, r in ends.items() if r.outcome is Outcome.ERROR} == {"cuda:2", "cuda:6"}
    assert "suspected, not confirmed" in ends["cuda:2"].reason


def test_all_slow_alike_is_for_the_expectations_to_say() -> None:
    assert not failed(judge_peer_links(measured(NAMES, alike(38.0)), DEVICES))


def test_who_did_not_come_to_the_end_stops_the_comparison_of_rates() -> None:
    results = measured(NAMES, lambda a, b: 38.0 if "cuda:3" in (a, b) else 380.0)
    hung = Result(test="peer_links", outcome=Outcome.HANG, device="cuda:3", reason="did not arrive")
    judged = {r.device: r for r in judge_peer_links([*results, hung], DEVICES)}
    assert judged["cuda:3"].outcome is Outcome.HANG
    assert judged["cuda:3"].reason == "did not arrive"
    assert {r.outcome for name, r in judged.items() if name != "cuda:3"} == {Outcome.PASS}


def test_nvlink_pairs_and_pcie_pairs_are_not_compared_with_each_other() -> None:
    bridged = [{"cuda:0", "cuda:1"}, {"cuda:2", "cuda:3"}]
    slow = measured(NAMES[:4], alike(20.0), "pcie")
    results = [r for r in slow if {r.device, r.locations[0].peer} not in bridged]
    fast = measured(NAMES[:4], alike(200.0))
    results += [r for r in fast if {r.device, r.locations[0].peer} in bridged]
    assert not failed(judge_peer_links(results, DEVICES[:4]))


def test_two_gpus_are_compared_by_their_ways_and_neither_is_named_alone() -> None:
    results = judge_peer_links(measured(NAMES[:2], lambda a, _: 300.0 if a == "cuda:0" else 380.0), DEVICES[:2])
    assert set(failed(results)) == {"cuda:0", "cuda:1"}
    assert "slow from cuda:0 to cuda:1" in failed(results)["cuda:1"]
    assert "a single pair cannot tell which end" in failed(results)["cuda:1"]
    assert not failed(
        judge_peer_links(measured(NAMES[:2], lambda a, _: 360.0 if a == "cuda:0" else 380.0), DEVICES[:2])
    )


def test_processes_of_one_host_may_differ_by_much() -> None:
    ragged = {name: 1 + number for number, name in enumerate(NAMES)}
    assert not failed(judge_peer_links(measured(NAMES, lambda a, _: 0.03 * ragged[a] ** 2, "host"), DEVICES))
    crawling = measured(NAMES, lambda a, b: 0.003 if "cuda:6" in (a, b) else 0.03 * ragged[a] ** 2, "host")
    assert list(failed(judge_peer_links(crawling, DEVICES))) == ["cuda:6"]


def links(up: int, name: str, **evidence: object) -> Result:
    return Result(test="peer_links", outcome=Outcome.PASS, device=name, evidence={"nvlinks_up": up, **evidence})


def with_one_beside(rate: float, medium: str, lost: str = "cuda:7") -> list[Result]:
    """All pairs over NVLink, but those of one GPU."""
    beside = measured(NAMES, lambda a, b: rate if lost in (a, b) else 380.0, medium)
    return [
        b if lost in (r.device, r.locations[0].peer) else r
        for r, b in zip(measured(NAMES, alike(380.0)), beside, strict=False)
    ]


def test_a_gpu_without_any_nvlink_among_gpus_that_have_them_fails() -> None:
    results = with_one_beside(40.0, "pcie") + [links(18, n) for n in NAMES[:7]]
    found = failed(judge_peer_links(results, DEVICES))
    assert list(found) == ["cuda:7"]
    assert "0 NVLinks up, 7 others have 18" in found["cuda:7"]
    assert "none of its pairs uses NVLink, while most other pairs do: 40 GB/s over pcie, 380 GB/s" in found["cuda:7"]


def test_a_gpu_whose_words_go_another_way_fails_though_its_links_are_up() -> None:
    results = with_one_beside(20.0, "pcie") + [links(18, n) for n in NAMES]
    assert list(failed(judge_peer_links(results, DEVICES))) == ["cuda:7"]
    as_fast = with_one_beside(380.0, "unknown") + [links(18, n) for n in NAMES]
    assert [r.outcome for r in judge_peer_links(as_fast, DEVICES)] == [Outcome.PASS] * 7 + [Outcome.ERROR]


def test_only_gpus_of_one_product_ought_to_have_the_same_links() -> None:
    other = (*DEVICES[:7], msgspec.structs.replace(DEVICES[7], product="L40S"))
    results = with_one_beside(20.0, "pcie") + [links(18, n) for n in NAMES[:7]]
    assert not failed(judge_peer_links(results, other))
    assert not failed(judge_peer_links(measured(NAMES, alike(20.0), "pcie"), DEVICES)), "nobody has any"


@given(st.integers(4, 8), st.data())
def test_only_who_lost_its_nvlinks_is_named(count: int, data: st.DataObject) -> None:
    names = NAMES[:count]
    lost = data.draw(st.none() | st.sampled_from(names))
    slow = data.draw(st.floats(1.0, 100.0))
    paths = [
        MeasuredPath(a, b, "pcie", slow) if lost in (a, b) else MeasuredPath(a, b, "nvlink", 380.0)
        for a, b in itertools.permutations(names, 2)
    ]
    up = [links(18, name) for name in names if name != lost]
    named = [lack.device for lack in find_gpus_off_nvlink(paths, {})]
    assert named == ([lost] if lost else [])
    assert [lack.device for lack in find_missing_nvlinks(up, set(names) - {r.device for r in up}, {})] == (
        [lost] if lost else []
    )


def test_a_bridge_between_two_asks_nothing_of_the_others() -> None:
    def bridged(count: int, *pairs: set[str]) -> list[MeasuredPath]:
        ways = itertools.permutations(NAMES[:count], 2)
        return [MeasuredPath(a, b, "nvlink" if {a, b} in pairs else "pcie", 1.0) for a, b in ways]

    assert not find_gpus_off_nvlink(bridged(3, {"cuda:0", "cuda:1"}), {})
    assert not find_gpus_off_nvlink(bridged(4, {"cuda:0", "cuda:1"}), {})
    assert not find_gpus_off_nvlink(bridged(6, {"cuda:0", "cuda:1"}, {"cuda:2", "cuda:3"}), {})


def test_who_hung_before_it_told_of_its_links_is_not_said_to_have_none() -> None:
    hung = Result(test="peer_links", outcome=Outcome.HANG, device="cuda:3", reason="did not arrive")
    results = [*measured(NAMES, alike(380.0)), *(links(18, n) for n in NAMES if n != "cuda:3"), hung]
    judged = {r.device: r for r in judge_peer_links(results, DEVICES)}
    assert (judged["cuda:3"].outcome, judged["cuda:3"].reason) == (Outcome.HANG, "did not arrive")


def test_links_of_which_the_driver_does_not_say_are_not_missed() -> None:
    unsaid = links(10, "cuda:5", nvlink_links=18, nvlinks_down="")
    results = measured(NAMES, alike(380.0)) + [links(18, n) for n in NAMES if n != "cuda:5"] + [unsaid]
    assert not failed(judge_peer_links(results, DEVICES))
    down = msgspec.structs.replace(unsaid, evidence=unsaid.evidence | {"nvlinks_down": "3, 4"})
    assert failed(judge_peer_links([*results[:-1], down], DEVICES)) == {"cuda:5": "16 NVLinks up, 7 others have 18"}


def test_fewer_nvlinks_up_than_the_siblings_have_fails() -> None:
    results = measured(NAMES, alike(380.0)) + [links(17 if n == "cuda:5" else 18, n) for n in NAMES]
    assert failed(judge_peer_links(results, DEVICES)) == {"cuda:5": "17 NVLinks up, 7 others have 18"}
    uneven = [links(4 if n in NAMES[:4] else 6, n) for n in NAMES]
    assert not failed(judge_peer_links(measured(NAMES, alike(380.0)) + uneven, DEVICES)), "no majority, no expectation"


def test_a_partner_of_who_spoils_data_keeps_its_pass_and_says_what_it_saw() -> None:
    results = [
        msgspec.structs.replace(r, outcome=Outcome.FAIL, reason=f"from {r.locations[0].peer}: 3 wrong words")
        if r.locations[0].peer == "cuda:4"
        else r
        for r in measured(NAMES, alike(380.0))
    ]
    judged = judge_peer_links(results, DEVICES)
    assert list(failed(judged)) == ["cuda:4"]
    assert "not at fault here: from cuda:4: 3 wrong words" in judged[0].remarks


def test_blame_names_common_ends_then_pairs() -> None:
    star = [("a", "b"), ("c", "a"), ("a", "d")]
    assert find_pair_culprits(star, "abcdefgh") == (("a",), ())
    assert find_pair_culprits([*star, ("g", "h")], "abcdefgh") == (("a",), (("g", "h"),))
    assert find_pair_culprits([("b", "a"), ("a", "b")], "ab") == ((), (("a", "b"),))
    every = [(a, b) for a in "abc" for b in "abc" if a < b]
    assert find_pair_culprits(every, "abc") == ((), tuple(every)), "what spoils every pair is no single device"
    assert find_pair_culprits([], "ab") == ((), ())


@given(st.integers(4, 12), st.data())
def test_blame_finds_any_one_bad_device_among_good_ones(count: int, data: st.DataObject) -> None:
    bad = data.draw(st.integers(0, count - 1))
    others = [n for n in range(count) if n != bad]
    hit = data.draw(st.lists(st.sampled_from(others), min_size=2, unique=True))
    ways = [(str(bad), str(n)) if data.draw(st.booleans()) else (str(n), str(bad)) for n in hit]
    assert find_pair_culprits(ways, [str(n) for n in range(count)]) == ((str(bad),), ())
