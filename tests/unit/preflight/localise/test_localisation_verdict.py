from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from preflight.fault_localisation.localisation_records import (
    Conclusion,
    Kind,
    LocalisationVerdict,
    PairExpectations,
    PairResult,
    Topology,
    Why,
)
from preflight.fault_localisation.localisation_verdict import localise_faults
from preflight.fault_localisation.pair_rounds import plan_pair_rounds

NODES = tuple(f"n{number:02}" for number in range(32))
FABRIC = Topology(NODES, {name: f"leaf{number // 8}" for number, name in enumerate(NODES)})
Share = Callable[[str, str], float | None]


def leaf(name: str) -> str:
    return FABRIC.leaf_of[name]


def results(share: Share, count: int = 4, seed: int = 1, rail: int | None = None) -> list[PairResult]:
    """Rounds on the fabric; `share` says what of 400 a pair reaches (None: it hangs), and every pair differs by up to 1 %."""
    found = []
    for number, pairs in enumerate(plan_pair_rounds(NODES, FABRIC.leaf_of, count, seed), 1):
        for place, (a, b) in enumerate(pairs):
            part = share(a, b)
            value = None if part is None else 400 * part * (1 + 0.01 * math.sin(7 * place + number))
            found.append(PairResult(number, a, b, rail, value, Why.HANG if part is None else Why.MEASURED))
    return found


def healthy(_a: str, _b: str) -> float:
    return 1.0


def bad(*names: str, share: float | None = 0.85) -> Share:
    return lambda a, b: share if {a, b} & set(names) else 1.0


def named(verdict: LocalisationVerdict) -> list[tuple[Kind, tuple[str, ...], int | None]]:
    return [(accused.kind, accused.where, accused.rail) for accused in verdict.culprits]


def test_nobody_is_slow() -> None:
    verdict = localise_faults(results(healthy), FABRIC)
    assert verdict.conclusion is Conclusion.NOBODY
    assert verdict.cleared == NODES
    assert not verdict.suspects


@pytest.mark.parametrize("share", [0.85, 0.3, None])
def test_a_node_is_named_with_how_slow_it_is(share: float | None) -> None:
    verdict = localise_faults(results(bad("n05", share=share)), FABRIC)
    assert named(verdict) == [(Kind.NODE, ("n05",), None)]
    (culprit,) = verdict.culprits
    assert culprit.score == pytest.approx(share or 0.0, abs=0.02)
    assert culprit.margin > 0.05
    assert culprit.evidence == ("slow with 4 of 4 cleared partners, and at full rate with none of its 4 partners",)
    assert "n05" not in verdict.cleared


def test_one_round_only_makes_suspects_of_both() -> None:
    seen = results(bad("n05"), count=1)
    verdict = localise_faults(seen, FABRIC)
    assert verdict.conclusion is Conclusion.INCONCLUSIVE
    partner = next({r.a, r.b} - {"n05"} for r in seen if "n05" in (r.a, r.b))
    assert {suspect.where[0] for suspect in verdict.suspects} == {"n05", *partner}


def test_a_good_node_that_met_only_bad_ones_is_a_suspect_and_no_culprit() -> None:
    seen = results(healthy, count=3)
    partners = {name for r in seen for name in (r.a, r.b) if "n05" in (r.a, r.b)} - {"n05"}
    verdict = localise_faults(results(bad(*partners), count=3), FABRIC)
    assert {culprit.where[0] for culprit in verdict.culprits} <= partners
    assert "n05" in {suspect.where[0] for suspect in verdict.suspects}


def test_one_slow_cell_between_clean_nodes_is_a_suspect_link() -> None:
    link = results(healthy)[40]
    verdict = localise_faults(results(lambda a, b: 0.5 if (a, b) == (link.a, link.b) else 1.0), FABRIC)
    assert verdict.conclusion is Conclusion.INCONCLUSIVE
    (suspect,) = verdict.suspects
    assert (suspect.kind, suspect.where) == (Kind.LINK, tuple(sorted((link.a, link.b))))


def test_slow_uplinks_are_the_switch_s_and_no_node_s() -> None:
    verdict = localise_faults(
        results(lambda a, b: 0.7 if leaf(a) != leaf(b) and "leaf2" in (leaf(a), leaf(b)) else 1.0), FABRIC
    )
    assert named(verdict) == [(Kind.SWITCH, ("leaf2",), None)]


def test_a_leaf_that_is_slow_inside_too_is_the_switch_s() -> None:
    verdict = localise_faults(results(lambda a, b: 0.7 if "leaf2" in (leaf(a), leaf(b)) else 1.0), FABRIC)
    assert named(verdict) == [(Kind.SWITCH, ("leaf2",), None)]


def test_a_path_between_two_leaves_is_named_as_such() -> None:
    verdict = localise_faults(
        results(lambda a, b: 0.6 if {leaf(a), leaf(b)} == {"leaf0", "leaf3"} else 1.0, count=10), FABRIC
    )
    assert named(verdict) == [(Kind.SWITCH, ("leaf0", "leaf3"), None)]


def test_an_oversubscribed_spine_is_no_node_s_fault() -> None:
    seen = results(lambda a, b: 0.4 if leaf(a) != leaf(b) else 1.0)
    verdict = localise_faults(seen, FABRIC, PairExpectations(inside=400, across=400))
    assert verdict.conclusion is Conclusion.NOBODY
    assert verdict.reasons == (
        "pairs across leaves reach 40% of the expected rate, all of them: not the fault of a node",
    )


def test_a_bad_node_is_seen_under_an_oversubscribed_spine() -> None:
    spine = bad("n05", "n17")
    verdict = localise_faults(results(lambda a, b: (spine(a, b) or 0) * (0.4 if leaf(a) != leaf(b) else 1.0)), FABRIC)
    assert [where for _, where, _ in named(verdict)] == [("n05",), ("n17",)]


def test_a_slower_product_is_no_fault_where_it_is_expected() -> None:
    old = dict.fromkeys(NODES[:8], 200.0)
    seen = results(lambda a, b: 0.5 if {a, b} & set(old) else 1.0)
    told = PairExpectations(inside=400, across=400, of_node=old)
    assert localise_faults(seen, FABRIC, told).conclusion is Conclusion.NOBODY
    assert localise_faults(seen, FABRIC).conclusion is Conclusion.CULPRITS


def test_one_rail_of_a_node_is_its_nic_and_all_rails_are_the_node() -> None:
    seen = [r for rail in range(4) for r in results(bad("n05") if rail == 2 else healthy, rail=rail)]
    assert named(localise_faults(seen, FABRIC)) == [(Kind.NIC, ("n05",), 2)]
    seen = [r for rail in range(4) for r in results(bad("n05"), rail=rail)]
    assert named(localise_faults(seen, FABRIC)) == [(Kind.NODE, ("n05",), None)]


def test_a_switch_of_one_rail_is_named_with_its_rail() -> None:
    def slow(a: str, b: str) -> float:
        return 0.7 if leaf(a) != leaf(b) and "leaf2" in (leaf(a), leaf(b)) else 1.0

    seen = [r for rail in range(4) for r in results(slow if rail == 1 else healthy, rail=rail)]
    assert named(localise_faults(seen, FABRIC)) == [(Kind.SWITCH, ("leaf2",), 1)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0, None])
def test_what_is_no_measurement_neither_accuses_nor_clears(value: float | None) -> None:
    seen = [r._replace(value=value) if "n05" in (r.a, r.b) else r for r in results(healthy)]
    verdict = localise_faults(seen, FABRIC)
    assert verdict.conclusion is Conclusion.INCONCLUSIVE
    assert (verdict.culprits, verdict.suspects, verdict.unknown, verdict.unreadable) == ((), (), ("n05",), 4)
    assert verdict.reasons == ("no readable result from 1 node: test them again",)


def test_a_pair_that_was_not_run_says_nothing() -> None:
    seen = [r._replace(value=None, why=Why.NOT_RUN) if r.round == 2 else r for r in results(healthy)]
    assert localise_faults(seen, FABRIC).conclusion is Conclusion.NOBODY


def test_a_node_that_failed_its_own_test_is_named_and_its_pairs_accuse_nobody() -> None:
    verdict = localise_faults(results(bad("n05", share=None)), FABRIC, unfit={"n05": "matmul_repeat: 3 outputs differ"})
    assert named(verdict) == [(Kind.NODE, ("n05",), None)]
    assert verdict.culprits[0].evidence == ("failed its own test: matmul_repeat: 3 outputs differ",)
    assert not verdict.suspects
    assert verdict.cleared == tuple(name for name in NODES if name != "n05")


def test_where_most_nodes_are_slow_nobody_is_named() -> None:
    verdict = localise_faults(results(bad(*NODES[:18], share=None)), FABRIC)
    assert verdict.conclusion is Conclusion.INCONCLUSIVE
    assert not verdict.culprits
    assert "too few healthy partners" in verdict.reasons[0]


def test_where_most_pairs_are_slow_silence_does_not_mean_that_all_is_well() -> None:
    verdict = localise_faults(results(bad(*NODES[0:30:2], share=0.8)), FABRIC)
    assert verdict.conclusion is Conclusion.INCONCLUSIVE
    assert "most pairs across leaves are slower than the best" in verdict.reasons[0]


def test_the_expected_rate_shows_the_bad_half_where_the_data_alone_cannot() -> None:
    gpus = tuple(f"gpu{index}" for index in range(8))
    slow = set(gpus[4:])
    seen = [
        PairResult(number, a, b, None, 396.0 * (0.85 if slow & {a, b} else 1.0) + number)
        for number, pairs in enumerate(plan_pair_rounds(gpus, {}, 7, 1))
        for a, b in pairs
        if {a, b} != {"gpu0", "gpu1"}
    ]
    one_leaf = Topology(gpus, dict.fromkeys(gpus, "baseboard"))
    assert localise_faults(seen, one_leaf).conclusion is Conclusion.INCONCLUSIVE
    assert {where[0] for _, where, _ in named(localise_faults(seen, one_leaf, PairExpectations(inside=396)))} == slow


def test_a_node_that_is_slow_now_and_then_is_a_suspect_then_a_culprit() -> None:
    def turns(count: int, slow_rounds: set[int]) -> LocalisationVerdict:
        seen = [
            r._replace(value=(r.value or 0) * 0.7) if "n05" in (r.a, r.b) and r.round in slow_rounds else r
            for r in results(healthy, count=count)
        ]
        return localise_faults(seen, FABRIC)

    assert [suspect.where for suspect in turns(4, {2, 4}).suspects] == [("n05",)]
    assert named(turns(6, {2, 4, 5})) == [(Kind.NODE, ("n05",), None)]


def test_one_bad_gpu_of_eight_by_the_same_code() -> None:
    gpus = tuple(f"gpu{index}" for index in range(8))
    seen = [
        PairResult(number, a, b, None, 396.0 * (0.9 if "gpu3" in (a, b) else 1.0) + number)
        for number, pairs in enumerate(plan_pair_rounds(gpus, {}, 7, 1))
        for a, b in pairs
    ]
    assert named(localise_faults(seen, Topology(gpus))) == [(Kind.NODE, ("gpu3",), None)]


def test_no_result_at_all_is_inconclusive() -> None:
    verdict = localise_faults([], FABRIC)
    assert verdict.conclusion is Conclusion.INCONCLUSIVE
    assert verdict.unknown == NODES


@pytest.mark.parametrize(("a", "b", "says"), [("n01", "n01", "itself"), ("n01", "stranger", "not in the topology")])
def test_a_result_that_cannot_be_is_refused_with_its_place(a: str, b: str, says: str) -> None:
    with pytest.raises(ValueError, match=f"round 7 .*{says}"):
        localise_faults([PairResult(7, a, b, None, 1.0)], FABRIC)
