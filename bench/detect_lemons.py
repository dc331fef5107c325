"""How well lemons are found: `python bench/detect_lemons.py [--seeds N]`. Markdown tables; nothing is asserted.

Fleets of `bench.lemon_fleets`: 2000 nodes, 28 days, 6.5 failures in 1000 node-days, 1.2 % lemons. The best that counts
allow is the best F1 of any fixed threshold on the number of failures, chosen afterwards over all seeds.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from bench import lemon_fleets as fleets
from bench.lemon_fleets import Fleet, Shape
from remediator.detection.lemons import DAY_S, Advice, Judged, Kind, judge_lemons

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Make = Callable[[int, Shape], Fleet]

TIMES = (5.0, 10.0, 20.0, 30.0, 50.0, 100.0, 220.0)
PUBLISHED_BEST = {10.0: 0.39, 20.0: 0.71, 30.0: 0.85, 50.0: 0.95, 100.0: 0.99}
BOOTSTRAPS = 1000
BINS = (0.0, 0.02, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0001)


def compute_f1(flagged: Flags, lemon: Flags) -> float:
    return 2 * float((flagged & lemon).sum()) / max(1.0, float(flagged.sum() + lemon.sum()))


def find_best_threshold(scores: Sequence[Floats], lemons: Sequence[Flags]) -> tuple[float, list[float]]:
    """(threshold, F1 of each seed) of the best threshold common to all seeds."""
    pooled, truth = np.concatenate(scores), np.concatenate(lemons)
    order = np.argsort(-pooled, kind="stable")
    hits = np.cumsum(truth[order])
    found = 2 * hits / (np.arange(1, pooled.size + 1) + truth.sum())
    last = np.r_[np.diff(pooled[order]) != 0, True]
    threshold = float(pooled[order][np.argmax(np.where(last, found, 0.0))])
    return threshold, [compute_f1(s >= threshold, lemon) for s, lemon in zip(scores, lemons, strict=True)]


def format_bootstrap_interval(values: Sequence[float]) -> str:
    """Mean and 95 % of its bootstrap."""
    drawn = np.random.default_rng(0).choice(np.asarray(values), (BOOTSTRAPS, len(values))).mean(axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return f"{np.mean(values):.3f} ({low:.3f}–{high:.3f})"


def count_failures(fleet: Fleet, days: float = 1e9) -> Floats:
    """Failures of each node in the last days."""
    late = (fleet.history.kind == Kind.FAILURE) & (fleet.history.time > fleet.as_of - days * DAY_S)
    return np.bincount(fleet.history.node[late], minlength=fleet.history.nodes).astype(np.float64)


def count_signals(fleet: Fleet) -> Floats:
    """In the manner of Meta's seven signals: how many of them stand above a threshold (theirs are not published, these are ours)."""
    history, many = fleet.history, fleet.history.nodes

    def of(kind: Kind) -> Floats:
        return np.bincount(history.node[history.kind == kind], minlength=many).astype(np.float64)

    xids = history.kind == Kind.XID
    pairs = np.unique(np.column_stack([history.node[xids], history.code[xids]]), axis=0)
    codes = np.bincount(pairs[:, 0], minlength=many)
    return np.asarray(
        (count_failures(fleet) >= 3) * 1.0 + (codes >= 2) + (of(Kind.TICKET) >= 2) + (of(Kind.TEST_FAILED) >= 1) * 1.0
        + (of(Kind.REMOVED) >= 2) + (of(Kind.EXCLUDED) >= 2), dtype=np.float64
    )  # fmt: skip


def flag_advised_nodes(found: Judged) -> Floats:
    """1 where the advice is to test, to repair or to replace."""
    return np.array([advice not in {Advice.NONE, Advice.WATCH} for advice in found.advice], dtype=np.float64)


def by_multiplier(seeds: int) -> None:
    print(
        "| times | best of counts | published | ours, best threshold | sent to test | p ≥ 0.5 | count ≥ 3 | with evidence: ours, best | sent to test | p ≥ 0.5 | two signals of six |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for times in TIMES:
        shape = Shape(times=times)
        plain = [fleets.counts_only(seed, shape) for seed in range(seeds)]
        rich = [fleets.with_evidence(seed, shape) for seed in range(seeds)]
        lemons = [fleet.lemon for fleet in plain]
        by_counts = [judge_lemons(fleet.history, fleet.as_of) for fleet in plain]
        by_more = [judge_lemons(fleet.history, fleet.as_of) for fleet in rich]
        ours, more = ([one.probability for one in told] for told in (by_counts, by_more))

        def at(scores: Sequence[Floats], least: float, truth: Sequence[Flags] = tuple(lemons)) -> list[float]:
            return [compute_f1(score >= least, lemon) for score, lemon in zip(scores, truth, strict=True)]

        cells = [
            format_bootstrap_interval(find_best_threshold([count_failures(fleet) for fleet in plain], lemons)[1]),
            f"{PUBLISHED_BEST[times]:.2f}" if times in PUBLISHED_BEST else "",
            format_bootstrap_interval(find_best_threshold(ours, lemons)[1]), format_bootstrap_interval(at([flag_advised_nodes(one) for one in by_counts], 1)),
            format_bootstrap_interval(at(ours, 0.5)), format_bootstrap_interval(at([count_failures(f) for f in plain], 3)),
            format_bootstrap_interval(find_best_threshold(more, lemons)[1]), format_bootstrap_interval(at([flag_advised_nodes(one) for one in by_more], 1)), format_bootstrap_interval(at(more, 0.5)),
            format_bootstrap_interval(at([count_signals(fleet) for fleet in rich], 2)),
        ]  # fmt: skip
        print(f"| {times:g}× | " + " | ".join(cells) + " |", flush=True)


def untold_rollout(seed: int, shape: Shape) -> Fleet:
    return fleets.driver_rollout(seed, shape, told=False)


def only_failed_listed(seed: int, shape: Shape) -> Fleet:
    """As most records are: a node to which nothing happened is not in it."""
    whole = fleets.counts_only(seed, shape)
    listed, node = np.unique(whole.history.node, return_inverse=True)
    history = dataclasses.replace(whole.history, nodes=listed.size, node=node.astype(np.int64))
    return Fleet(history, whole.lemon[listed], whole.as_of)


SCENARIOS: tuple[tuple[str, Make], ...] = (
    ("nothing else", fleets.counts_only), ("quiet nodes not listed", only_failed_listed),
    ("further evidence", fleets.with_evidence),
    ("one user's bug", fleets.users_bug), ("rack bursts", fleets.rack_bursts),
    ("driver rollout, told", fleets.driver_rollout), ("rollout to all, not told", untold_rollout),
    ("big jobs share blame", fleets.big_jobs), ("uneven service", fleets.uneven_service),
    ("our own cordons", fleets.own_cordons), ("repair after each failure", fleets.with_repairs),
)  # fmt: skip


def in_scenarios(seeds: int) -> None:
    print(
        "\n| scenario | clean: nodes > 0.5 a fleet | fleets with any | count ≥ 3 | 30×: false | found | F1 | count ≥ 3: false | F1 |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, make in SCENARIOS:
        clean = [make(seed, Shape(share=0.0)) for seed in range(seeds)]
        wrong = [float((judge_lemons(fleet.history, fleet.as_of).probability > 0.5).sum()) for fleet in clean]
        naive = [float((count_failures(fleet) >= 3).sum()) for fleet in clean]
        sour = [make(seed, Shape()) for seed in range(seeds)]
        flagged = [judge_lemons(fleet.history, fleet.as_of).probability > 0.5 for fleet in sour]
        raw = [count_failures(fleet) >= 3 for fleet in sour]
        truth = [fleet.lemon for fleet in sour]
        pairs, rough = list(zip(flagged, truth, strict=True)), list(zip(raw, truth, strict=True))
        cells = [
            format_bootstrap_interval(wrong), f"{sum(w > 0 for w in wrong)} of {seeds}", f"{np.mean(naive):.1f}",
            f"{np.mean([(f & ~t).sum() for f, t in pairs]):.2f}",
            f"{np.mean([(f & t).sum() for f, t in pairs]):.1f} of {np.mean([t.sum() for t in truth]):.1f}",
            format_bootstrap_interval([compute_f1(f, t) for f, t in pairs]),
            f"{np.mean([(f & ~t).sum() for f, t in rough]):.1f}", f"{np.mean([compute_f1(f, t) for f, t in rough]):.3f}",
        ]  # fmt: skip
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def measure_calibration(seeds: int) -> None:
    """Does 0.7 mean seven of ten? Over all multipliers and clean fleets, as many of each."""
    told: dict[str, tuple[list[Judged], list[Flags]]] = {"counts": ([], []), "with evidence": ([], [])}
    for seed in range(seeds):
        for times in (*TIMES, 0.0):
            shape = Shape(times=max(times, 1.0), share=fleets.SHARE if times else 0.0)
            for name, make in (("counts", fleets.counts_only), ("with evidence", fleets.with_evidence)):
                fleet = make(seed, shape)
                told[name][0].append(judge_lemons(fleet.history, fleet.as_of))
                told[name][1].append(fleet.lemon)
    print("\n| said | " + " | ".join(f"{name}: nodes | said on average | are lemons" for name in told) + " |")
    print("|---:|" + "---:|" * 6)
    for low, high in itertools.pairwise(BINS):
        cells = [f"{low:.2f}–{min(high, 1):.2f}"]
        for judged, lemons in told.values():
            said = np.concatenate([each.probability for each in judged])
            truth = np.concatenate(lemons)
            inside = (said >= low) & (said < high)
            many = int(inside.sum())
            cells += [
                str(many),
                f"{said[inside].mean():.3f}" if many else "",
                f"{truth[inside].mean():.3f}" if many else "",
            ]
        print("| " + " | ".join(cells) + " |")


def measure_speed() -> None:
    for shape in (Shape(), Shape(nodes=12_500, days=180.0)):
        fleet = fleets.with_evidence(0, shape)
        began = time.process_time()
        judge_lemons(fleet.history, fleet.as_of)
        spent = time.process_time() - began
        print(
            f"\n{shape.nodes} nodes, {shape.days:.0f} days, {fleet.history.node.size} rows: {spent:.2f} s of one core"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    seeds = parser.parse_args().seeds
    by_multiplier(seeds)
    in_scenarios(seeds)
    measure_calibration(seeds)
    measure_speed()


if __name__ == "__main__":
    main()
