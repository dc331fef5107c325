"""The simulator against arithmetic, then policies side by side on fleets of published figures. Prints Markdown.

python bench/simulate.py [formula] [usual] [rare] [log-normal] [no-spares]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from remediator.playbook.load import SHIPPED, load_policy
from remediator.simulate.engine import Measured, exact, first_order, simulate
from remediator.simulate.parameters import Parameters
from remediator.simulate.policies import POLICIES
from remediator.simulate.summary import Estimate, estimate, summarised

SEEDS = range(1, 11)
FLEETS: dict[str, dict[str, Any]] = {
    "usual": {},
    "rare": {"failures_per_1000_node_days": 2.34},
    "log-normal": {"repair_log_normal": True},
    "no-spares": {"spares_per_1024": 0},
}


def formula() -> None:
    nodes, shipped = 2048, load_policy([SHIPPED])
    print("| Δ, min | pause, s | formula | exact | simulated | off the formula | off the exact one |")
    print("|---|---|---|---|---|---|---|")
    for minutes in (60, 30, 15, 5):
        for pause_s in (0, 30):
            p = Parameters(
                nodes=nodes, days=60, lemon_share=0, lasting_share=0, refail_day_share=0, refail_month_share=0,
                straggler_share=0, silent_share=1, job_nodes=(nodes,), spares_per_1024=0, restart_min_minutes=5,
                restart_max_minutes=5, checkpoint_interval_minutes=minutes, checkpoint_pause_s=pause_s,
            )  # fmt: skip
            runs = [simulate("none", p, shipped, s, np.random.default_rng(s)).effective_time for s in range(30)]
            found = estimate(runs)
            per_day = nodes * 6.5 / 1000
            first, true = (f(per_day, 300, 60 * minutes, pause_s) for f in (first_order, exact))
            off = [f"{100 * (found.mean / e - 1):+.1f} %" for e in (first, true)]
            print(
                f"| {minutes} | {pause_s} | {first:.3f} | {true:.3f} | {found.text(digits=4)} | {off[0]} | {off[1]} |"
            )


def fleet(name: str, seeds: Iterable[int]) -> list[Measured]:
    p, shipped = Parameters(**FLEETS[name]), load_policy([SHIPPED])
    return [simulate(policy, p, shipped, seed, np.random.default_rng(seed)) for seed in seeds for policy in POLICIES]


def page(name: str, runs: list[Measured]) -> str:
    p = Parameters(**FLEETS[name])
    lines = [
        f"{name}: {p.nodes} nodes, {p.days:g} days, {len({one.seed for one in runs})} seeds\n",
        "| policy | goodput, % | effective time, % | more than none, points | restarts a day | healthy days | wrong | out | by people |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    base = np.array([one.effective_time for one in runs if one.policy == "none"])
    for s in summarised(runs):
        own = np.array([one.effective_time for one in runs if one.policy == s.policy])
        more: Estimate = estimate((own - base).tolist())
        lines.append(
            f"| {s.policy} | {s.goodput.text(100, digits=2)} | {s.effective_time.text(100, digits=2)} "
            f"| {more.text(100, digits=2)} | {s.restarts_per_day.text()} | {s.healthy_node_days_lost.text()} "
            f"| {s.wrong_actions.text()} | {s.isolations.text()} | {s.by_people.text()} |"
        )
    return "\n".join(lines)


def main() -> None:
    for name in sys.argv[1:] or ("formula", *FLEETS):
        if name == "formula":
            formula()
        else:
            print(f"\n{page(name, fleet(name, SEEDS))}")


if __name__ == "__main__":
    main()
