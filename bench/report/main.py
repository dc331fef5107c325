"""The command: each budget in a process of its own, then one report.

A measurement that pins itself to a core, turns its collector off or dies must not touch the next one; and what one left in memory must not be
measured with another.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from bench.budgets.table import BUDGETS
from bench.report.machine import ROOT, describe_machine, fixed_python_ms
from bench.report.records import Answer, Budget, Effort, Failed, summarise_outcome
from bench.report.render import Result, Run, render_report, render_section

REPORT = ROOT / "bench" / "results" / "report.md"
DEADLINE_S = 1200.0
SAID_CHARACTERS_MAX = 2000


def main(argv: list[str] | None = None) -> int:
    """Run it. Returns 1 if a measurement broke, 2 for a name that is no budget's; a missed budget is no error."""
    asked = _asked(argv)
    known = {budget.name: budget for budget in BUDGETS}
    if unknown := [name for name in asked.only if name not in known]:
        print(f"no budget '{unknown[0]}'; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    effort = Effort(quick=asked.quick, gcm=asked.gcm)
    begun, before = datetime.now(timezone.utc), os.getloadavg()[0]
    results = []
    for budget in [known[name] for name in asked.only] or BUDGETS:
        print(f"{budget.name} ...", file=sys.stderr, end=" ", flush=True)
        results.append(_measured(budget, effort))
        print(
            f"{summarise_outcome(results[-1].answer).value}, {results[-1].seconds:.0f} s", file=sys.stderr, flush=True
        )
        if asked.only:
            print(render_section(results[-1]))
    if out := asked.out or (None if asked.only or asked.quick else REPORT):
        run = Run(
            machine=describe_machine(),
            at=begun.strftime("%d %B %Y %H:%M UTC"),
            quick=asked.quick,
            load_before=before,
            load_after=os.getloadavg()[0],
            results=tuple(results),
        )
        out.write_text(render_report(run))
        print(f"written: {out}", file=sys.stderr)
    return int(any(isinstance(result.answer, Failed) for result in results))


def _asked(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the budgets and write one report.")
    parser.add_argument("only", nargs="*", metavar="BUDGET", help="only these, printed and not written")
    parser.add_argument("--quick", action="store_true", help="one small repeat each: some five minutes for all")
    parser.add_argument("--gcm", default="", metavar="PATH", help="the `gcm` program, to measure beside healthd")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help=f"default, without --quick: {REPORT.relative_to(ROOT)}"
    )
    return parser.parse_args(argv)


def _measured(budget: Budget, effort: Effort) -> Result:
    load, python_ms = os.getloadavg()[0], fixed_python_ms()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        answer = in_a_process(budget, effort, Path(folder) / "answer")
    return Result(budget, answer, time.monotonic() - began, load, python_ms)


def in_a_process(budget: Budget, effort: Effort, file: Path) -> Answer:
    """Measure it there; the answer comes back by the file."""
    command = [
        sys.executable,
        "-m",
        "bench.report.single_budget",
        budget.name,
        msgspec.json.encode(effort).decode(),
        str(file),
    ]
    try:
        done = subprocess.run(
            command, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DEADLINE_S
        )
    except subprocess.TimeoutExpired:
        return Failed(f"not done within {DEADLINE_S:g} s")
    if not file.exists():
        return Failed(f"exit code {done.returncode}\n{done.stdout.decode(errors='replace')[-SAID_CHARACTERS_MAX:]}")
    answer: Answer = msgspec.json.decode(file.read_bytes(), type=Answer)
    return answer
