"""A day of a big cluster in ten minutes, with the system and without: docs/explanation/a-day.md. Writes a page and its picture."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.day import page
from bench.day.account import account
from bench.day.cluster import BUDGET
from bench.day.faults import draw, rehearsal
from bench.day.records import read
from bench.day.run import run
from healthctl.demo.slurm_cluster import why_not


def main() -> int:
    """Run both, judge, write the page and its picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=32)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--with", dest="only", action="store_const", const="with", help="this run alone")
    which.add_argument("--without", dest="only", action="store_const", const="without", help="this run alone")
    parser.add_argument("--rehearse", action="store_true", help="each kind of fault once, instead of a day")
    parser.add_argument("--keep", type=Path, help="keep the records here (a new directory)")
    parser.add_argument("--judge", type=Path, help="run nothing: judge the records that --keep left here")
    parser.add_argument("--out", type=Path, default=Path("build/day"), help="PREFIX of the page and its picture")
    options = parser.parse_args()
    nodes = [f"n{number:02}" for number in range(1, options.nodes + 1)]
    plan = rehearsal(options.minutes, nodes) if options.rehearse else draw(options.seed, options.minutes, nodes)
    names = [options.only] if options.only else ["without", "with"]
    if options.judge:
        _write(options, options.judge, names, "not run anew")
        return 0
    if why := why_not():
        print(f"no Slurm here: {why}", file=sys.stderr)
        return 3
    load = f"load {os.getloadavg()[0]:.1f} before it began"
    with tempfile.TemporaryDirectory(prefix="gh-day-") as temporary:
        place = (options.keep or Path(temporary)).resolve()
        for name in names:
            run(place / name, plan, options.nodes, options.minutes, with_system=name == "with")
        _write(options, place, names, f"{load}, {os.getloadavg()[0]:.1f} when it ended")
    return 0


def _write(options: argparse.Namespace, place: Path, names: list[str], load: str) -> None:
    accounts = {name: account(read(place / name)) for name in names}
    limit = int(str(BUDGET["isolated_max"]))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    out: Path = options.out
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".svg").write_text(page.picture(accounts, limit))
    told = f"seed {options.seed}, {options.minutes:g} minutes, {options.nodes} nodes, commit {commit.strip()}, {load}"
    parts = (
        f"`python -m bench.day --minutes {options.minutes:g} --nodes {options.nodes} --seed {options.seed}`: {told}.",
        f"![Useful node-steps and nodes held over time]({out.name}.svg)",
        page.table(accounts, limit),
        "## Where the other node-steps went",
        page.breakdown(accounts),
        "## Each fault",
        page.stories(accounts),
        "## Durations",
        page.assumed(),
    )
    out.with_suffix(".md").write_text("\n\n".join(parts) + "\n")
    print(f"{page.table(accounts, limit)}\n\n{page.breakdown(accounts)}")
    print(f"\n{out}.md, {out}.svg")


if __name__ == "__main__":
    sys.exit(main())
