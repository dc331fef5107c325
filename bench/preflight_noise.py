"""Verdicts of preflight under noise, by its own judging code: `python -m bench.preflight_noise [--runs 1000]`.

No GPU takes part: rates are drawn. Eight devices of one node. Nothing is asserted; the bounds are a test of their own.

Links: each of the 28 pairs is timed as `preflight.checks.peer_links` does, and suspects meet partners again. One transfer takes
`1 + |noise|` times as long as on an idle machine; a third of the noise is common to all transfers of one timing. A dead NVLink of
18 costs its GPU 5.6 % of every pair.

Figures: the rates of all tests of one run, with the scatter of devices and a third of it between repeats.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from bench.preflight_expect import DEVICES, GPUS, format_wilson_interval
from preflight.device_comparison.link_results import judge_peer_links, plan_next_pairs
from preflight.fault_localisation.localisation_records import PairResult
from preflight.fault_localisation.pair_rounds import plan_pair_rounds
from preflight.platform_measurement.day_records import FigureNoise
from preflight.platform_measurement.false_alarms import count_false_alarms
from preflight.results import Figure, Location, Outcome, Result

NAMES = tuple(device.name for device in DEVICES)
RATE = 380.0  # GB/s of a pair
DEAD_LINK = 17 / 18
CONFIRMATIONS = 4


@dataclass(frozen=True)
class Timing:
    """How one rate is measured: from `timings` of `transfers` each, by `choose`."""

    transfers: int
    timings: int
    choose: Callable[[list[float]], float]


ONE_TRANSFER = Timing(1, 3, statistics.median)
LEAST_OF_FIVE = Timing(20, 5, min)


def measure(share: float, noise: float, timing: Timing, chance: random.Random) -> float:
    """A rate in GB/s of a path that reaches `share` of the usual one."""
    seconds = [
        abs(chance.gauss(0, noise / 3))
        + sum(1 + abs(chance.gauss(0, noise)) for _ in range(timing.transfers)) / timing.transfers
        for _ in range(timing.timings)
    ]
    return RATE * share / timing.choose(seconds)


def measure_links(noise: float, timing: Timing, chance: random.Random, slow: str = "") -> list[Result]:
    """The judged results of all devices; `slow` has a dead link."""
    found: list[Result] = []
    met: list[PairResult] = []

    def run(number: int, pairs: tuple[tuple[str, str], ...]) -> None:
        for a, b in pairs:
            share = DEAD_LINK if slow in (a, b) else 1.0
            up, down, both = (measure(share, noise, timing, chance) for _ in range(3))
            met.append(PairResult(number, a, b, None, min(up, down)))
            found.extend((_pair_result(number, a, b, up, both), _pair_result(number, b, a, down, both)))

    for number, pairs in enumerate(plan_pair_rounds(NAMES, {}, GPUS, 1), 1):
        run(number, pairs)
    for number in range(GPUS, GPUS + CONFIRMATIONS):
        if not (pairs := plan_next_pairs(met, NAMES, "")):
            break
        run(number, pairs)
    return judge_peer_links(found, DEVICES)


def _pair_result(number: int, sender: str, receiver: str, alone: float, both: float) -> Result:
    return Result(
        test="peer_links",
        outcome=Outcome.PASS,
        device=receiver,
        figures=(
            Figure(name="pair_rate", value=alone, unit="GB/s", setting="nvlink"),
            Figure(name="pair_rate", value=both, unit="GB/s", setting="nvlink, both ways"),
        ),
        locations=(Location(gpu=receiver, peer=sender),),
        evidence={"round": number},
    )


def count_link_verdicts(noise: float, timing: Timing, runs: int, *, faulty: bool) -> dict[str, int]:
    """Of `runs` nodes: exactly the right device failed, another failed, none failed but some are inconclusive."""
    counts = {"right": 0, "wrong": 0, "inconclusive": 0}
    for seed in range(runs):
        chance = random.Random(f"{noise} {timing.transfers} {faulty} {seed}")  # noqa: S311 - no secret
        slow = NAMES[seed % GPUS] if faulty else ""
        outcomes = {r.device: r.outcome for r in measure_links(noise, timing, chance, slow)}
        failed = [name for name, outcome in outcomes.items() if outcome is Outcome.FAIL]
        if failed:
            counts["right" if failed == [slow] else "wrong"] += 1
        elif Outcome.ERROR in outcomes.values():
            counts["inconclusive"] += 1
    return counts


RATES = 40  # figures of each device in a run at level standard
JOINT = 6  # figures that all devices measure together


def build_noises(scatter: float) -> list[FigureNoise]:
    """The figures of one run, with `scatter` between devices and a third of it between repeats."""
    alone = [("matmul_repeat", "product_rate", "TFLOP/s", 790.0, False)] * RATES
    together = [("collectives", "collective_latency", "us", 30.0, True)] * JOINT
    return [
        FigureNoise(
            test=test,
            figure=figure,
            unit=unit,
            setting=f"setting {number}",
            usual=usual,
            between=scatter,
            repeat=scatter / 3,
            joint=joint,
        )
        for number, (test, figure, unit, usual, joint) in enumerate([*alone, *together])
    ]


def count_figure_verdicts(scatter: float, fleets: int, nodes: int, *, measured: bool) -> dict[str, int]:
    """Of `fleets` times `nodes` healthy nodes: any device failed, or any is inconclusive."""
    noises = build_noises(scatter)
    found = count_false_alarms(noises, DEVICES, measured=measured, size=(fleets, nodes), seed=f"{scatter}")
    return {"failed": found.failed, "inconclusive": found.inconclusive}


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    runs: int = parser.parse_args().runs
    print(
        "| links: noise | one transfer, median of 3: dead link named | healthy inconclusive | 20 transfers, least of 5: dead link named | healthy inconclusive | healthy failed |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for noise in (0.01, 0.02, 0.03, 0.05):
        cells = []
        for timing in (ONE_TRANSFER, LEAST_OF_FIVE):
            dead = count_link_verdicts(noise, timing, runs, faulty=True)
            healthy = count_link_verdicts(noise, timing, runs, faulty=False)
            cells += [
                format_wilson_interval(dead["right"], runs),
                format_wilson_interval(healthy["inconclusive"], runs),
            ]
        print(f"| {noise:.0%} | {' | '.join(cells)} | {format_wilson_interval(healthy['wrong'], runs)} |", flush=True)
    print("\n| figures: scatter | measured platform: failed | inconclusive | unmeasured: failed | inconclusive |")
    print("|---|---:|---:|---:|---:|")
    for scatter in (0.01, 0.02, 0.03, 0.05):
        cells = []
        for measured in (True, False):
            found = count_figure_verdicts(scatter, max(1, runs // 25), 25, measured=measured)
            cells += [format_wilson_interval(each, runs // 25 * 25) for each in found.values()]
        print(f"| {scatter:.0%} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
