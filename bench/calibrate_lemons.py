"""Whether a lemon's probability is what it says: `python bench/calibrate_lemons.py [--seeds N]`. Markdown tables.

Fleets of `bench.lemon_episodes`; per bin of the promise the share of true lemons and of nodes that fail again within 28
days, with Wilson intervals. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import itertools
import math
from typing import NamedTuple

import numpy as np

from bench.lemon_episodes import EpisodeShape, Flags, Floats, draw_episodic_fleet
from remediator.detection.lemons import judge_lemons

BINS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0001)
SHARE = 0.012
FLEETS = {
    "no lemons": EpisodeShape(),
    "no lemons, most repairs of no help": EpisodeShape(unhelpful=0.42, unhelpful_again=0.42),
    "no lemons, heavy-tailed repairs": EpisodeShape(repairs="heavy", record="repairs"),
    "no lemons, half a year": EpisodeShape(nodes=1000, days=182.0),
    "no lemons, small": EpisodeShape(nodes=100, days=60.0),
    "no lemons, only failures recorded": EpisodeShape(record="bare"),
    "no lemons, repairs recorded": EpisodeShape(record="repairs"),
    "no lemons, faults return late": EpisodeShape(relapse_d=1.5),
    "no lemons, stubborn faults": EpisodeShape(unhelpful_again=0.6),
    "lemons 5 to 220 times": EpisodeShape(lemons=SHARE),
    "lemons, repairs recorded": EpisodeShape(lemons=SHARE, record="repairs"),
    "lemons, heavy-tailed repairs": EpisodeShape(lemons=SHARE, repairs="heavy", record="repairs"),
    "lemons, every repair helps": EpisodeShape(lemons=SHARE, unhelpful=0.0, unhelpful_again=0.0),
    "lemons, most repairs of no help": EpisodeShape(lemons=SHARE, unhelpful=0.42, unhelpful_again=0.42),
    "lemons, faults return late": EpisodeShape(lemons=SHARE, relapse_d=1.5),
    "lemons, stubborn faults": EpisodeShape(lemons=SHARE, unhelpful_again=0.6),
    "lemons, half a year": EpisodeShape(nodes=1000, days=182.0, lemons=SHARE),
    "lemons, small": EpisodeShape(nodes=100, days=60.0, lemons=0.02),
    "lemons, only failures recorded": EpisodeShape(lemons=SHARE, record="bare"),
    "lemons 5 to 10 times": EpisodeShape(lemons=SHARE, times=(5.0, 10.0)),
}
Z = 1.96


class Promises(NamedTuple):
    """Of many nodes: the promised probability, whether it is a lemon, whether it failed within four weeks."""

    said: Floats
    lemon: Flags
    again: Flags


def judge_fleets(shape: EpisodeShape, seeds: int) -> Promises:
    found: list[Promises] = []
    for seed in range(seeds):
        drawn = draw_episodic_fleet(seed, shape)
        judged = judge_lemons(drawn.fleet.history, drawn.fleet.as_of, fleet_nodes=shape.nodes)
        found.append(Promises(judged.probability, drawn.fleet.lemon, drawn.failed_again))
    return join_promises(found)


def join_promises(found: list[Promises]) -> Promises:
    return Promises(*(np.concatenate(column) for column in zip(*found, strict=True)))


def wilson_interval(hits: int, many: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    share, spread = hits / many, Z * Z / many
    middle = (share + spread / 2) / (1 + spread)
    half = Z * math.sqrt(share * (1 - share) / many + spread / (4 * many)) / (1 + spread)
    return middle - half, middle + half


def format_share(flags: Flags) -> str:
    low, high = wilson_interval(int(flags.sum()), flags.size)
    return f"{flags.mean():.2f} ({low:.2f}–{high:.2f})"


def print_reliability(title: str, found: Promises) -> None:
    print(f"\n{title}\n\n| promised | nodes | on average | are lemons | fail again within 28 days |")
    print("|---:|---:|---:|---:|---:|")
    for low, high in itertools.pairwise(BINS):
        inside = (found.said >= low) & (found.said < high)
        if inside.any():
            cells = [str(int(inside.sum())), f"{found.said[inside].mean():.2f}"]
            cells += [format_share(found.lemon[inside]), format_share(found.again[inside])]
            print(f"| {low:g}–{min(high, 1):g} | " + " | ".join(cells) + " |")


def print_fleet(name: str, found: Promises) -> None:
    sure, likely = found.said >= 0.9, found.said >= 0.5
    hits = 2 * int((likely & found.lemon).sum()) / max(1, int(likely.sum() + found.lemon.sum()))
    cells = [
        int(found.lemon.sum()),
        int((likely & ~found.lemon).sum()),
        int((likely & found.lemon).sum()),
        f"{hits:.2f}",
    ]
    cells += [
        int(sure.sum()),
        *(f"{flags[sure].mean():.2f}" if sure.any() else "" for flags in (found.lemon, found.again)),
    ]
    print(f"| {name} | " + " | ".join(map(str, cells)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    print("| fleets | lemons | p ≥ 0.5: usual | lemons | F1 | p ≥ 0.9: nodes | are lemons | fail again |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    every = {}
    for name, shape in FLEETS.items():
        every[name] = judge_fleets(shape, seeds * (5 if "small" in name else 1))
        print_fleet(name, every[name])
    print_reliability("All of these", join_promises([*every.values()]))
    without = [found for name, found in every.items() if name.startswith("lemons")]
    print_reliability("Those with lemons", join_promises(without))


if __name__ == "__main__":
    main()
