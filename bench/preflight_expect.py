"""Who is failed by which source, over pretended fleets: `python bench/preflight_expect.py [--seeds 40]`.

Each cell: share of nodes failed, with its 95 % interval by Wilson; for the rule also the share without a conclusion. Nothing asserted.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from dataclasses import dataclass, replace

from preflight.check_context import Device
from preflight.expectations.baseline_learning import learn_baseline
from preflight.expectations.bounds import misses_bound
from preflight.expectations.device_history import History, record_run
from preflight.expectations.fleet_baseline import Baseline, compute_level
from preflight.expectations.product_table import Product, ProductRow, ProductTable
from preflight.expectations.result_judgement import Knowledge, apply_expectations
from preflight.results import DOCUMENT_VERSION, Document, Figure, Outcome, Result, Source, Verdict

GPUS, FIGURES, JUDGED = 8, 6, 5
USUAL, WORST = 790.0, 700.0  # an H200's product rate in bf16: the floor is 11 % under it
NAME = "NVIDIA H200"
DEVICES = tuple(
    Device(name=f"cuda:{i}", torch_name=f"cuda:{i}", index=i, label=NAME, product=NAME) for i in range(GPUS)
)


@dataclass(frozen=True)
class Plan:
    """One kind of fleet. `noise` is the scatter of devices; nodes differ by half of it, repeats by a third.

    `learned` nodes made the baseline; of them the share `slow_learned` is 12 % slow, and `variant` of all nodes are a board that
    reaches `variant_by` less. `bad` is how much the judged node's last device, or all of them if `whole`, are slower than in their past.
    `build_product_rows` is by how much the table asks for more than it should; None: there is none. `gpus` is how many a node has.
    """

    noise: float = 0.02
    learned: int = 32
    bad: float = 0.0
    whole: bool = False
    table: float | None = 0.0
    slow_learned: float = 0.0
    variant: float = 0.0
    variant_by: float = 0.06
    past: int = 4
    gpus: int = GPUS


class Node:
    """One pretended node: what its devices really reach, and runs of it."""

    def __init__(self, plan: Plan, chance: random.Random, slow: float = 0.0) -> None:
        own = -plan.variant_by if chance.random() < plan.variant else 0.0
        self._plan, self._chance = plan, chance
        self._reach = [
            [
                USUAL
                * (1 - slow)
                * (1 + own)
                * (1 + chance.gauss(0, plan.noise / 2))
                * (1 + chance.gauss(0, plan.noise))
                for _ in range(plan.gpus)
            ]
            for _ in range(FIGURES)
        ]

    def run(self, bad: float = 0.0) -> tuple[Result, ...]:
        """One result a device, with every figure."""
        count = self._plan.gpus
        return tuple(
            Result(
                test="matmul_repeat",
                outcome=Outcome.PASS,
                device=f"cuda:{i}",
                figures=tuple(
                    Figure(
                        name="product_rate",
                        value=self._reach[k][i]
                        * (1 + self._chance.gauss(0, self._plan.noise / 3))
                        * (1 - bad * (self._plan.whole or i == count - 1)),
                        unit="TFLOP/s",
                        setting=f"type {k}",
                    )
                    for k in range(FIGURES)
                ),
            )
            for i in range(count)
        )


def build_document(node: str, results: tuple[Result, ...], at: float) -> Document:
    return Document(
        version=DOCUMENT_VERSION,
        level="gate",
        node=node,
        complete=True,
        rounds=1,
        verdict=Verdict.PASS,
        reason="",
        reasons=(),
        injected=(),
        started_at=at,
        seconds=1.0,
        devices=DEVICES[: len(results)],
        software={},
        results=results,
    )


def build_product_rows(more: float | None) -> ProductTable:
    if more is None:
        return ProductTable()
    row = ProductRow(
        test="matmul_repeat",
        figure="product_rate",
        unit="TFLOP/s",
        usual=USUAL * (1 + more),
        worst=WORST * (1 + more),
        source="pretended",
    )
    return ProductTable(
        products=(Product(product="H200", names=(NAME,), memory=1, power=1, source="pretended", rows=(row,)),)
    )


def build_baseline(plan: Plan, chance: random.Random) -> Baseline:
    slow = round(plan.slow_learned * plan.learned)
    nodes = [Node(plan, chance, 0.12 if i < slow else 0.0) for i in range(plan.learned)]
    return learn_baseline(build_document(f"n{i}", node.run(), 1.0) for i, node in enumerate(nodes))


SOURCES = {"table alone": Source.SKU, "siblings alone": Source.SIBLINGS, "fleet alone": Source.FLEET}


def judge_nodes(plan: Plan, seed: int) -> list[set[str]]:
    """Which rules fail each of the judged nodes; ``unsure`` where ours comes to no conclusion."""
    chance = random.Random(f"{plan} {seed}")  # noqa: S311 - no secret
    known = Knowledge(node="judged", table=build_product_rows(plan.table), baseline=build_baseline(plan, chance))
    found = []
    for _ in range(JUDGED):
        node, past = Node(plan, chance), History()
        for run in range(plan.past):
            past = record_run(past, build_document("judged", node.run(), float(run + 1)))
        results = apply_expectations(node.run(plan.bad), DEVICES[: plan.gpus], replace_history(known, past))
        figures = [figure for result in results for figure in result.figures]
        by = {
            name
            for name, source in SOURCES.items()
            if any(e.source is source and misses_bound(f.value, e) for f in figures for e in f.expected)
        }
        outcomes = {result.outcome for result in results}
        if Outcome.FAIL in outcomes:
            by.add("the rule")
        elif Outcome.ERROR in outcomes:
            by.add("unsure")
        found.append(by)
    return found


def replace_history(known: Knowledge, past: History) -> Knowledge:
    return Knowledge(node=known.node, table=known.table, baseline=known.baseline, history=past)


def format_wilson_interval(hits: int, of: int) -> str:
    """A share and its 95 % interval."""
    z, p = 1.96, hits / of
    middle = (p + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return f"{p:.3f} ({max(0.0, middle - half):.3f}–{min(1.0, middle + half):.3f})"


PLANS: dict[str, Plan] = {
    "good, noise 1 %": Plan(noise=0.01),
    "good, noise 2 %": Plan(),
    "good, noise 3 %": Plan(noise=0.03),
    "good, noise 2 %, no baseline": Plan(learned=0),
    "good, noise 3 %, no baseline": Plan(noise=0.03, learned=0),
    "good, noise 2 %, baseline of 3": Plan(learned=3),
    "good, noise 3 %, baseline of 3": Plan(noise=0.03, learned=3),
    "good, noise 3 %, baseline of 8": Plan(noise=0.03, learned=8),
    "good, 12 of 32 learned are slow": Plan(slow_learned=0.375),
    "good, table 20 % too high": Plan(table=0.2),
    "good, table 20 % too high, baseline of 3": Plan(table=0.2, learned=3),
    "good, table 20 % too high, no baseline": Plan(table=0.2, learned=0),
    "good, 30 % of nodes another board (−6 %)": Plan(variant=0.3),
    "good, one GPU a node": Plan(gpus=1),
    "one device −5 %": Plan(bad=0.05),
    "one device −8 %": Plan(bad=0.08),
    "one device −10 %": Plan(bad=0.10),
    "one device −15 %": Plan(bad=0.15),
    "one device −20 %": Plan(bad=0.20),
    "one device −30 %": Plan(bad=0.30),
    "one device −10 %, noise 1 %": Plan(noise=0.01, bad=0.10),
    "one device −15 %, noise 3 %": Plan(noise=0.03, bad=0.15),
    "one device −15 %, no baseline": Plan(bad=0.15, learned=0),
    "one device −15 %, baseline of 3": Plan(bad=0.15, learned=3),
    "one device −15 %, table 20 % too low": Plan(bad=0.15, table=-0.2),
    "one device −15 %, 12 of 32 learned are slow": Plan(bad=0.15, slow_learned=0.375),
    "one device −15 %, 30 % another board": Plan(bad=0.15, variant=0.3),
    "whole node −10 %": Plan(bad=0.10, whole=True),
    "whole node −15 %": Plan(bad=0.15, whole=True),
    "whole node −15 %, no baseline": Plan(bad=0.15, whole=True, learned=0),
    "whole node −15 %, no baseline, no past": Plan(bad=0.15, whole=True, learned=0, past=0),
    "whole node −15 %, baseline of 3": Plan(bad=0.15, whole=True, learned=3),
    "good, 35 % of nodes another part (−50 %), no table": Plan(variant=0.35, variant_by=0.5, table=None),
    "good, 35 % of nodes another part (−12 %), no table": Plan(variant=0.35, variant_by=0.12, table=None),
    "good, noise 20 %, no table": Plan(noise=0.2, table=None),
    "one device −95 %, noise 20 %, no table": Plan(noise=0.2, bad=0.95, table=None, past=0),
    "whole node −15 %, no table, no past": Plan(bad=0.15, whole=True, table=None, past=0),
    "whole node −15 %, no table, no past, 4 of 32 learned are slow": Plan(
        bad=0.15, whole=True, table=None, past=0, slow_learned=0.125
    ),
    "one GPU a node, −15 %": Plan(bad=0.15, gpus=1),
    "one GPU a node, −15 %, no baseline": Plan(bad=0.15, gpus=1, learned=0),
}


def print_drift(seeds: int) -> None:
    """A fleet that slows by half a per cent a week, learned weekly: where its level is, and who is failed on the way."""
    print("\n| week | fleet really at | level at | good nodes failed |\n|---|---:|---:|---:|")
    weeks = (0, 4, 8, 16, 24, 32, 40)
    levels: dict[int, list[float]] = {week: [] for week in weeks}
    failed: dict[int, list[bool]] = {week: [] for week in weeks}
    plan = Plan(learned=12)
    for seed in range(seeds):
        chance = random.Random(f"drift {seed}")  # noqa: S311 - no secret
        nodes = [Node(plan, chance) for _ in range(plan.learned)]
        learned = Baseline()
        for week in range(weeks[-1] + 1):
            slow = 1 - 0.995**week
            whole = replace(plan, whole=True)
            for node in nodes:
                node._plan = whole  # noqa: SLF001 - the same node, slower in all its devices
            documents = [build_document(f"n{i}", node.run(slow), float(week)) for i, node in enumerate(nodes)]
            if week in weeks:
                known = Knowledge(node="n0", table=ProductTable(), baseline=learned)
                failed[week].append(
                    any(r.outcome is Outcome.FAIL for r in apply_expectations(documents[0].results, DEVICES, known))
                )
            learned = learn_baseline(documents, learned)
            if week in weeks:
                found = [compute_level(entry) for entry in learned.entries]
                levels[week].append(sum(each.usual for each in found if each) / len(found) / USUAL)
    for week in weeks:
        at = sum(levels[week]) / len(levels[week])
        print(
            f"| {week} | {0.995**week:.3f} | {at:.3f} | {format_wilson_interval(sum(failed[week]), len(failed[week]))} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    seeds: int = parser.parse_args().seeds
    began = time.process_time()
    names = [*SOURCES, "the rule"]
    print(
        f"{seeds} fleets of each kind, {JUDGED} nodes judged in each, {FIGURES} figures a device, {GPUS} devices a node\n"
    )
    print("| fleet | " + " | ".join(names) + " | the rule: no conclusion |")
    print("|---|" + "---:|" * (len(names) + 1))
    for title, plan in PLANS.items():
        judged = [by for seed in range(seeds) for by in judge_nodes(plan, seed)]
        cells = [format_wilson_interval(sum(name in by for by in judged), len(judged)) for name in (*names, "unsure")]
        print(f"| {title} | " + " | ".join(cells) + " |", flush=True)
    print_drift(seeds)
    print(f"\n{time.process_time() - began:.0f} s of CPU")


if __name__ == "__main__":
    main()
