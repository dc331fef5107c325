"""`python -m tests.chaos --seeds 1-500 --jobs 4`: random disasters on real processes, judged by an independent checker."""

from __future__ import annotations

import argparse
import concurrent.futures
import shutil
import sys
from pathlib import Path

from tests.chaos import ledger
from tests.chaos.campaign import Result, commit, run_plan, why_not
from tests.chaos.plan_generator import draw


def main() -> int:
    """0: all seeds passed; 1: at least one did not; 2: it cannot run here."""
    options = _options()
    if why := why_not():
        print(f"{why}; run it as root, in a virtual machine or a privileged container", file=sys.stderr)
        return 2
    options.place.mkdir(parents=True, exist_ok=True)
    file = options.place / "ledger.jsonl"
    at = commit()
    known = set() if options.replay else ledger.passed(ledger.read(file), at)
    wanted = [seed for seed in options.replay or _seeds(options.seeds) if seed not in known]
    results: list[Result] = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(_one, seed, options.place, at, keep=options.keep) for seed in wanted]
        for future in concurrent.futures.as_completed(futures):
            results.append(future.result())
            ledger.add(file, results[-1])
            _tell(results[-1], len(results), len(wanted))
    table = ledger.summary([each for each in ledger.read(file) if each.commit == at])
    (options.place / "summary.md").write_text(table)
    print(table)
    return 0 if all(result.passed for result in results) else 1


def _one(seed: int, place: Path, at: str, *, keep: bool) -> Result:
    """A run; its files stay if it failed or somebody wants to see them."""
    folder = place / f"seed-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    result = run_plan(draw(seed), folder, at)
    if result.passed and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _tell(result: Result, number: int, of: int) -> None:
    words = "passed" if result.passed else "FAILED"
    print(
        f"{number}/{of} seed {result.seed} {words} in {result.seconds:.0f} s, {result.cpu_s:.1f} s of CPU: "
        f"{', '.join(result.disasters)}",
        flush=True,
    )
    for name, wrong in result.verdicts.items():
        for each in wrong:
            print(f"    {name}: {each}", flush=True)


def _seeds(text: str) -> list[int]:
    """`7`, `1-500`, `1-10,20`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seeds", default="1-50", help="which, as 1-500 or 3,7,10-20; those that passed are skipped")
    parser.add_argument("--jobs", type=int, default=4, help="how many runs at once")
    parser.add_argument(
        "--replay", type=int, action="append", metavar="SEED", help="run this seed again, passed or not"
    )
    parser.add_argument("--keep", action="store_true", help="keep the files of runs that passed, too")
    parser.add_argument("--place", type=Path, default=Path("/tmp/chaos"), help="where runs and the ledger are")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
