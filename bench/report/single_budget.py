"""One budget, measured in this process: `python -m bench.report.single_budget NAME EFFORT FILE`. For `bench.report.main` alone."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from bench.budgets.table import BUDGETS
from bench.report.records import Effort


def main(name: str, effort: str, file: str) -> None:
    """Measure, and write the answer to the file."""
    budget = next(budget for budget in BUDGETS if budget.name == name)
    answer = budget.measure(msgspec.json.decode(effort, type=Effort))
    Path(file).write_bytes(msgspec.json.encode(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
