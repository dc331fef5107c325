from __future__ import annotations

from bench.fabrics import Fabric, Plan
from preflight.fault_localisation.confirmation_rounds import plan_confirmation_round
from preflight.fault_localisation.localisation_records import Conclusion, Kind, PairResult, Topology
from preflight.fault_localisation.localisation_verdict import localise_faults
from preflight.fault_localisation.pair_rounds import plan_pair_rounds

NODES = tuple(f"n{number:02}" for number in range(32))
FABRIC = Topology(NODES, {name: f"leaf{number // 8}" for number, name in enumerate(NODES)})
LINK = ("n03", "n20")


def rate(number: int, a: str, b: str, *bad: str) -> PairResult:
    slow = {a, b} == set(LINK) or bool({a, b} & set(bad))
    return PairResult(number, a, b, None, (200.0 if slow else 400.0) + len(a) + number % 3)


def with_the_link(*bad: str) -> list[PairResult]:
    planned = plan_pair_rounds(NODES, FABRIC.leaf_of, 3, 1)
    found = [rate(number, a, b, *bad) for number, pairs in enumerate(planned, 1) for a, b in pairs]
    return [r for r in found if {r.a, r.b} != set(LINK)] + [rate(1, *LINK)]


def test_a_link_is_tested_again_then_its_ends_and_only_then_named() -> None:
    seen = with_the_link()
    assert plan_confirmation_round(localise_faults(seen, FABRIC), FABRIC, seen) == (LINK,)
    seen += [rate(4, *LINK)]
    twice = localise_faults(seen, FABRIC)
    assert (twice.conclusion, twice.suspects[0].where) == (Conclusion.INCONCLUSIVE, LINK)
    ends = plan_confirmation_round(twice, FABRIC, seen)
    assert sorted({name for pair in ends for name in pair} & set(LINK)) == list(LINK)
    assert LINK not in ends
    assert all(FABRIC.leaf_of[a] == FABRIC.leaf_of[b] for a, b in ends)
    seen += [rate(5, a, b) for a, b in ends]
    (culprit,) = localise_faults(seen, FABRIC).culprits
    assert (culprit.kind, culprit.where) == (Kind.LINK, LINK)
    assert plan_confirmation_round(localise_faults(seen, FABRIC), FABRIC, seen) == ()


def test_where_all_have_met_a_links_ends_meet_earlier_partners_again() -> None:
    few = Topology(("a", "b", "c", "d"))
    seen = [
        PairResult(number, a, b, None, 200.0 if {a, b} == {"a", "b"} else 400.0 + number)
        for number, pairs in enumerate([*plan_pair_rounds(few.nodes, {}, 3, 1), (("a", "b"),)], 1)
        for a, b in pairs
    ]
    pairs = plan_confirmation_round(localise_faults(seen, few), few, seen)
    assert sorted(name for pair in pairs for name in pair) == ["a", "b", "c", "d"]
    assert {"a", "b"} not in [set(pair) for pair in pairs]
    seen += [PairResult(5, a, b, None, 401.0) for a, b in pairs]
    assert [(c.kind, c.where) for c in localise_faults(seen, few).culprits] == [(Kind.LINK, ("a", "b"))]


def test_a_link_that_is_clean_the_second_time_is_forgotten() -> None:
    seen = [*with_the_link(), PairResult(4, *LINK, None, 400.0)]
    assert localise_faults(seen, FABRIC).conclusion is Conclusion.NOBODY


def test_an_end_that_is_slow_with_others_too_is_suspect_instead_of_its_link() -> None:
    seen = [*with_the_link(), rate(4, *LINK), rate(5, "n03", "n04", "n03"), rate(5, "n20", "n21")]
    assert [(s.kind, s.where) for s in localise_faults(seen, FABRIC).suspects] == [(Kind.NODE, ("n03",))]


def test_a_suspect_node_gets_a_new_partner_of_its_own_leaf() -> None:
    seen = [r for r in with_the_link("n05") if r.round == 1 or "n05" not in (r.a, r.b)]
    pairs = plan_confirmation_round(localise_faults(seen, FABRIC), FABRIC, seen)
    (mine,) = (pair for pair in pairs if "n05" in pair)
    assert {FABRIC.leaf_of[name] for name in mine} == {"leaf0"}
    assert not any({r.a, r.b} == set(mine) for r in seen)


def test_tests_that_collide_by_chance_make_no_bad_links_however_often_they_are_confirmed() -> None:
    wrong = 0
    for seed in range(8):
        fabric = Fabric(Plan(nodes=32, collisions=0.1), seed)
        seen = fabric.results(plan_pair_rounds(fabric.topology.nodes, fabric.topology.leaf_of, 3, seed))
        for _ in range(4):
            if pairs := plan_confirmation_round(localise_faults(seen, fabric.topology), fabric.topology, seen):
                seen += fabric.results([pairs])
        wrong += len(localise_faults(seen, fabric.topology).culprits)
    assert wrong <= 1
