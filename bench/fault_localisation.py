"""Who is named among many nodes, by five rules on the same pretended fabrics: `python bench/fault_localisation.py [--seeds 100]`.

Each cell: share of the culprits named / wrong names in a cluster / rounds / tests a node. Nothing asserted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from bench.fabrics import RATE, Fabric, Plan
from preflight.fault_localisation.confirmation_rounds import plan_confirmation_round
from preflight.fault_localisation.localisation_records import LocalisationVerdict, PairResult
from preflight.fault_localisation.localisation_verdict import localise_faults
from preflight.fault_localisation.pair_rounds import plan_pair_rounds

Names = frozenset[tuple[str, ...]]
Rule = Callable[[Fabric], Names]
ROUNDS = 3
CONFIRMATIONS_MAX = 5
SLOW = 0.92  # the others' bound, as a share of the true rate, which they are told: no site knows it so well


def _names(verdict: LocalisationVerdict) -> Names:
    return frozenset(accused.where for accused in verdict.culprits)


def _first(fabric: Fabric, count: int = ROUNDS) -> list[PairResult]:
    planned = plan_pair_rounds(fabric.topology.nodes, fabric.topology.leaf_of, count, fabric.seed)
    fabric.plant_links(planned)
    return fabric.results(planned)


def ours_unconfirmed(fabric: Fabric) -> Names:
    """Three rounds and our verdict."""
    return _names(localise_faults(_first(fabric), fabric.topology, fabric.expectations))


def judge_by_confirmation(fabric: Fabric) -> Names:
    """The same, then confirmations until no suspect is left, five at most."""
    results = _first(fabric)
    verdict = localise_faults(results, fabric.topology, fabric.expectations)
    for _ in range(CONFIRMATIONS_MAX):
        again = plan_confirmation_round(verdict, fabric.topology, results)
        if not again:
            break
        results += fabric.results([again])
        verdict = localise_faults(results, fabric.topology, fabric.expectations)
    return _names(verdict)


def _slow(fabric: Fabric, pair: tuple[str, str], rate: float) -> bool:
    leaf = fabric.topology.leaf_of
    return not rate >= SLOW * RATE * (1.0 if leaf[pair[0]] == leaf[pair[1]] else fabric.plan.across)


def best_of_three(fabric: Fabric) -> Names:
    """The same three rounds; a node is named if it is slow with each partner."""
    results = _first(fabric)
    clean = {n for r in results if not _slow(fabric, (r.a, r.b), r.value or 0.0) for n in (r.a, r.b)}
    return frozenset((name,) for name in fabric.topology.nodes if name not in clean)


def _neighbours(fabric: Fabric) -> tuple[list[str], list[str]]:
    """Suspect and good nodes after one round of neighbours."""
    names = fabric.topology.nodes
    pairs = tuple(zip(names[0::2], names[1::2], strict=True))
    fabric.plant_links([pairs])
    rates = fabric.run(pairs)
    slow = [p for p in pairs if _slow(fabric, p, rates[p])]
    return [n for p in slow for n in p], [n for p in pairs if p not in slow for n in p]


def _with_good(fabric: Fabric, suspects: Sequence[str], good: Sequence[str], turn: int) -> list[str]:
    """Who of the suspects is slow with a good node; with as many rounds as the good nodes need to serve all."""
    named = []
    for start in range(0, len(suspects) if good else 0, max(1, len(good))):
        batch = suspects[start : start + len(good)]
        pairs = [(name, good[(i + turn * 7) % len(good)]) for i, name in enumerate(batch)]
        named += [p[0] for p, rate in fabric.run(pairs).items() if _slow(fabric, p, rate)]
    return named


def two_rounds(fabric: Fabric) -> Names:
    """Neighbours, then each node of a slow pair with a good one (dlrover): named if slow again."""
    return frozenset((name,) for name in _with_good(fabric, *_neighbours(fabric), 1))


def suspect_plus_good(fabric: Fabric) -> Names:
    """Neighbours, then each suspect with two good nodes (Google's suspect test): named if slow with both."""
    suspects, good = _neighbours(fabric)
    once = _with_good(fabric, suspects, good, 1)
    return frozenset((name,) for name in _with_good(fabric, once, good, 2))


def judge_by_bisection(fabric: Fabric) -> Names:
    """Rings of eight neighbours; slow ones are halved (NVIDIA's cluster readiness); the last two each with a good node."""
    names = fabric.topology.nodes
    groups = [names[i : i + 8] for i in range(0, len(names), 8)]
    fabric.plant_links([tuple(zip(names[0::2], names[1::2], strict=True))])
    good: list[str] = []
    last: list[str] = []
    while groups:
        fast = [not _slow(fabric, (g[0], g[1]), rate) for g, rate in zip(groups, fabric.group(groups), strict=True)]
        good += [n for g, fine in zip(groups, fast, strict=True) if fine for n in g]
        slow = [g for g, fine in zip(groups, fast, strict=True) if not fine]
        last += [n for g in slow if len(g) == 2 for n in g]
        groups = [half for g in slow if len(g) > 2 for half in (g[: len(g) // 2], g[len(g) // 2 :])]
    return frozenset((name,) for name in _with_good(fabric, last, good, 1))


RULES: dict[str, Rule] = {
    "ours, confirmed": judge_by_confirmation,
    "ours, 3 rounds": ours_unconfirmed,
    "best of 3": best_of_three,
    "two rounds": two_rounds,
    "suspect + good": suspect_plus_good,
    "bisection": judge_by_bisection,
}
FOUR = Plan(bad=4)
PLANS: dict[str, Plan] = {
    "nobody": Plan(),
    "nobody, noise 5 %": Plan(noise=0.05),
    "nobody, heavy tails (t, 4 degrees, 2 %)": Plan(noise=0.02, tail=4),
    "nobody, spine half as fast as leaves": Plan(across=0.5),
    "nobody, 20 % of tests across collide": Plan(collisions=0.2),
    "nobody, 40 % of tests across collide": Plan(collisions=0.4),
    "1 node at 0.85": Plan(bad=1),
    "1 node at 0.85, 20 % of tests across collide": Plan(bad=1, collisions=0.2),
    "1 node at 0.93": Plan(bad=1, factor=0.93, noise=0.01),
    "4 nodes at 0.85": FOUR,
    "4 neighbours at 0.85": replace(FOUR, together=True),
    "4 nodes hang": replace(FOUR, factor=0.0),
    "4 nodes, spine half as fast": replace(FOUR, across=0.5),
    "4 nodes, noise 5 %": replace(FOUR, noise=0.05, factor=0.7),
    "4 nodes, 10 % of results lost": replace(FOUR, lost=0.1),
    "4 nodes, bad in 70 % of tests": replace(FOUR, flicker=0.7),
    "16 nodes of 64": replace(FOUR, bad=16),
    "28 nodes of 64": replace(FOUR, bad=28),
    "28 nodes of 64, rates told": replace(FOUR, bad=28, told=True),
    "2 links at 0.6": Plan(links=2, factor=0.6),
    "1 leaf's uplinks at 0.7": Plan(uplinks=1, factor=0.7),
    "1 leaf, inside and out, at 0.7": Plan(leaves=1, factor=0.7),
    "2 nodes, 2 links, 1 leaf's uplinks": Plan(bad=2, links=2, uplinks=1, factor=0.7),
    "5 of 232 nodes, 8 to a leaf": Plan(nodes=232, bad=5),
    "32 of 1024 nodes, 32 to a leaf": Plan(nodes=1024, per_leaf=32, bad=32),
    "8 GPUs, 1 at 0.85 (one leaf)": Plan(nodes=8, bad=1),
}


def measure_rule(plan: Plan, rule: Rule, seeds: int) -> str:
    """One cell of the table, over `seeds` clusters."""
    culprits = found = wrong = turns = tests = 0
    for seed in range(seeds):
        fabric = Fabric(plan, seed)
        named = rule(fabric)
        culprits += len(fabric.truth)
        found += len(named & fabric.truth)
        wrong += len(named - fabric.truth)
        turns += fabric.rounds_run
        tests += fabric.node_tests
    recall = f"{found / culprits:.2f}" if culprits else "–"
    return f"{recall} / {wrong / seeds:.2f} / {turns / seeds:.1f} / {tests / seeds / plan.nodes:.1f}"


def by_rounds(seeds: int) -> None:
    """Right without a confirmation, and wrong names against the arithmetic (n − d)(d/(n − 1))^r."""
    print(
        "\n| n, bad, rounds | exactly right, best of r | exactly right, ours | wrong, arithmetic | wrong, best of r | wrong, ours |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for nodes, bad, per_leaf in ((64, 4, 8), (64, 16, 8), (1024, 32, 32)):
        for count in (2, 3, 4):
            right, wrong = [0, 0], [0, 0]
            for seed in range(seeds):
                fabric = Fabric(Plan(nodes=nodes, per_leaf=per_leaf, bad=bad), seed)
                results = _first(fabric, count)
                clean = {n for r in results if not _slow(fabric, (r.a, r.b), r.value or 0.0) for n in (r.a, r.b)}
                best = frozenset((name,) for name in fabric.topology.nodes if name not in clean)
                for which, named in enumerate(
                    (best, _names(localise_faults(results, fabric.topology, fabric.expectations)))
                ):
                    right[which] += named == fabric.truth
                    wrong[which] += len(named - fabric.truth)
            chance = (nodes - bad) * (bad / (nodes - 1)) ** count
            shares = " | ".join(f"{hits / seeds:.2f}" for hits in right)
            print(
                f"| {nodes}, {bad}, {count} | {shares} | {chance:.4f} | {' | '.join(f'{w / seeds:.4f}' for w in wrong)} |"
            )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="clusters a cell")
    seeds = parser.parse_args().seeds
    print(f"| recall / wrong / rounds / tests a node | {' | '.join(RULES)} |\n|---|{'---:|' * len(RULES)}")
    for name, plan in PLANS.items():
        few = max(5, seeds // 5) if plan.nodes > 256 else seeds
        print(f"| {name} | {' | '.join(measure_rule(plan, rule, few) for rule in RULES.values())} |", flush=True)
    by_rounds(seeds)
    fabric = Fabric(Plan(nodes=4096, per_leaf=32, bad=40), 1)
    began = time.process_time()
    planned = plan_pair_rounds(fabric.topology.nodes, fabric.topology.leaf_of, ROUNDS, 1)
    results, planned_s = fabric.results(planned), time.process_time() - began
    began = time.process_time()
    verdict = localise_faults(results, fabric.topology, fabric.expectations)
    print(
        f"\n4096 nodes: rounds and pretended tests {planned_s:.2f} s, verdict {time.process_time() - began:.2f} s of CPU, {len(verdict.culprits)} named"
    )


if __name__ == "__main__":
    main()
