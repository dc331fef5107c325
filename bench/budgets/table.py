"""Every budget of the design, in its order. A new one is its file and its line here."""

from __future__ import annotations

from bench.budgets import (
    fleet_load,
    healthctl_start,
    healthd_at_rest,
    ingest,
    kernel_line,
    pages,
    preflight_gate,
    straggler_pass,
    trainer_step,
    whole_path,
)
from bench.report.records import Budget

BUDGETS: tuple[Budget, ...] = (
    healthd_at_rest.BUDGET,
    kernel_line.BUDGET,
    whole_path.MAILBOX,
    whole_path.SLURM,
    whole_path.KUBERNETES,
    trainer_step.BUDGET,
    fleet_load.BUDGET,
    ingest.BUDGET,
    straggler_pass.BUDGET,
    preflight_gate.BUDGET,
    pages.BUDGET,
    healthctl_start.BUDGET,
)
