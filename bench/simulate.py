"""The simulator against arithmetic, then policies side by side on fleets of published figures. Prints Markdown.

python bench/simulate.py [formula] [usual] [256-gpus] [2048-gpus] [16384-gpus] [rare] [log-normal] [no-spares] [--seeds N]
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from remediator.playbook.playbook_loader import SHIPPED, load_policy
from remediator.simulation.compared_policies import POLICIES
from remediator.simulation.run_summary import Estimate, estimate_mean, summarize_policies
from remediator.simulation.simulation_parameters import SimulationParameters
from remediator.simulation.simulation_run import SimulationResult, exact_goodput, first_order_goodput, run_simulation

GPUS_PER_NODE = 8
FLEETS: dict[str, dict[str, Any]] = {
    "usual": {},
    **{f"{gpus}-gpus": {"nodes": gpus // GPUS_PER_NODE} for gpus in (256, 2048, 16384)},
    "rare": {"failures_per_1000_node_days": 2.34},
    "log-normal": {"repair_log_normal": True},
    "no-spares": {"spares_per_1024": 0},
}


def compare_with_formula(seeds: Iterable[int]) -> None:
    """First-order formula, exact value and simulation; `lost` is the share that the formula takes for lost, N·r·(u0 + Δ/2)."""
    shipped = load_policy([SHIPPED])
    print("| GPUs | Δ, min | pause, s | lost | formula | exact | simulated | off the formula | off the exact one |")
    print("|---:|---:|---:|---:|---|---|---|---|---|")
    for gpus, minutes, pause_s in itertools.product((256, 2048, 16384), (60, 30, 15, 5), (0, 30)):
        nodes = gpus // GPUS_PER_NODE
        p = SimulationParameters(
            nodes=nodes, days=60, lemon_share=0, lasting_share=0, refail_day_share=0, refail_month_share=0,
            straggler_share=0, silent_share=1, job_nodes=(nodes,), spares_per_1024=0, restart_min_minutes=5,
            restart_max_minutes=5, checkpoint_interval_minutes=minutes, checkpoint_pause_s=pause_s,
        )  # fmt: skip
        runs = [run_simulation("none", p, shipped, s, np.random.default_rng(s)).effective_time for s in seeds]
        found, per_day = estimate_mean(runs), nodes * p.failures_per_1000_node_days / 1000
        first, true = (f(per_day, 300, 60 * minutes, pause_s) for f in (first_order_goodput, exact_goodput))
        lost = per_day / 86400 * (300 + 30 * minutes)
        off = [f"{100 * (found.mean / e - 1):+.1f} %" for e in (first, true)]
        print(
            f"| {gpus} | {minutes} | {pause_s} | {lost:.3f} | {first:.3f} | {true:.3f} | {found.text(digits=4)} "
            f"| {off[0]} | {off[1]} |", flush=True,
        )  # fmt: skip


def simulate_fleet(name: str, seeds: Iterable[int]) -> list[SimulationResult]:
    p, shipped = SimulationParameters(**FLEETS[name]), load_policy([SHIPPED])
    return [
        run_simulation(policy, p, shipped, seed, np.random.default_rng(seed)) for seed in seeds for policy in POLICIES
    ]


def render_fleet(name: str, runs: list[SimulationResult]) -> str:
    p = SimulationParameters(**FLEETS[name])
    lines = [
        f"{name}: {p.nodes} nodes, {p.days:g} days, {len({one.seed for one in runs})} seeds\n",
        "| policy | goodput, % | effective time, % | more than none, points | restarts a day | healthy days | wrong | out | by people |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    base = np.array([one.effective_time for one in runs if one.policy == "none"])
    for s in summarize_policies(runs):
        own = np.array([one.effective_time for one in runs if one.policy == s.policy])
        more: Estimate = estimate_mean((own - base).tolist())
        lines.append(
            f"| {s.policy} | {s.goodput.text(100, digits=2)} | {s.effective_time.text(100, digits=2)} "
            f"| {more.text(100, digits=2)} | {s.restarts_per_day.text()} | {s.healthy_node_days_lost.text()} "
            f"| {s.wrong_actions.text()} | {s.isolations.text()} | {s.by_people.text()} |"
        )
    return "\n".join(lines)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("what", nargs="*", default=["formula", *FLEETS], help="formula, or names of fleets")
    asked.add_argument("--seeds", type=int, default=10, help="of each fleet; three times as many for the formula")
    given = asked.parse_args()
    for name in given.what:
        if name == "formula":
            compare_with_formula(range(3 * given.seeds))
        else:
            print(f"\n{render_fleet(name, simulate_fleet(name, range(1, given.seeds + 1)))}", flush=True)


if __name__ == "__main__":
    main()
