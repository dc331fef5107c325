"""How long a node is tested before work may start on it."""

from __future__ import annotations

from bench.preflight_gate import GateRun, one_run
from bench.report.records import Budget, Effort, Figure, Unmeasured, split_into_repeats


def measure_preflight_gate(effort: Effort) -> Unmeasured:
    """The budget is a GPU's; what can be run here is the same plan on halves of the host."""
    runs = [one_run("gate") for _ in range(effort.either(1, 5))]
    last = runs[-1]
    return Unmeasured(
        why=f"the gate needs an H200; this run was on {last.devices} (verdicts: {', '.join(run.verdict for run in runs)}).",
        last="none; no gate has been run on a GPU (bench/results/2026-11-preflight-gate.md tells of the host alone).",
        figures=(
            _figure("whole gate on the host, start-up included", runs),
            _figure("of that, processor", runs, cpu=True),
        ),
    )


def _figure(named: str, runs: list[GateRun], *, cpu: bool = False) -> Figure:
    return Figure(named=named, unit="s", repeats=split_into_repeats([run.cpu_s if cpu else run.wall_s for run in runs]))


BUDGET = Budget(
    "preflight-gate",
    "Preflight at level gate on one H200",
    "≤ 10 s with start-up; ≥ 98 % of free HBM written and verified with ≥ 4 patterns at ≥ 95 % of the measured fill and read ceilings (≤ 0.6 s)",
    measure_preflight_gate,
)
