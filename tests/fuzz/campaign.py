"""All targets, one after the other: `python -m tests.fuzz.campaign --cases N` (make fuzz CASES=N).

Prints a table, adds it to the file of results, and keeps the smallest cases that reached something new, for the suite.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.registry import SHARES, target
from tests.fuzz.target import CORPUS, corpus_of

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "fuzz"
RESULTS = ROOT / "bench" / "results" / "2026-11-fuzz.md"
CASE_S_MAX = 60  # by the clock, and the machine may be busy; none takes a second
MEMORY_MIB_MAX = 2048
KEPT_MAX, KEPT_BYTES_MAX = 80, 6_000  # of one target
_MEMORY = Path("/dev/shm")
_EXECUTED = re.compile(rb"stat::number_of_executed_units:\s*(\d+)")
_PEAK = re.compile(rb"stat::peak_rss_mb:\s*(\d+)")


class Outcome(NamedTuple):
    """What one target's part of a campaign did."""

    name: str
    cases: int
    seconds: float
    peak_mib: int
    broke: str  # what libFuzzer said last, empty if nothing broke


def _fuzz(name: str, cases: int, seed: int) -> Outcome:
    """Try so many cases; what is new goes into the target's working corpus."""
    place = WORK / name
    corpus = place / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    chosen = target(name)
    for number, case in enumerate((*chosen.seeds, *corpus_of(name))):
        (corpus / f"seed-{number}").write_bytes(case)
    begun = time.monotonic()
    done = _guided(
        name,
        f"-runs={cases}",
        f"-seed={seed}",
        f"-max_len={chosen.bytes_max}",
        f"-timeout={CASE_S_MAX}",
        f"-rss_limit_mb={MEMORY_MIB_MAX}",
        f"-artifact_prefix={place}/",
        "-print_final_stats=1",
        "-reload=0",
        str(corpus),
    )
    executed, peak = _EXECUTED.search(done.stderr), _PEAK.search(done.stderr)
    broke = "" if done.returncode == 0 else _last_words(done.stderr + done.stdout)
    return Outcome(name, _number(executed), time.monotonic() - begun, _number(peak), broke)


def _guided(name: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tests.fuzz.libfuzzer_run", name, *options]
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_MEMORY if _MEMORY.is_dir() else None) as place:
        environment = {**os.environ, "TMPDIR": place}  # libFuzzer ends without a word to Python
        return subprocess.run(command, cwd=ROOT, capture_output=True, check=False, env=environment)


def _number(found: re.Match[bytes] | None) -> int:
    return int(found[1]) if found else 0


def _last_words(said: bytes) -> str:
    lines = [line.strip() for line in said.decode(errors="replace").splitlines()]
    telling = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b|==\d+== ERROR", line)]
    files = [line.rpartition(" ")[2] for line in lines if "Test unit written to" in line]
    return " ".join([*telling[:1], *files[:1]]) or (lines[-1] if lines else "ended without a word")


def _keep(name: str) -> None:
    """The smallest cases that once reached something new; not those that are seeds."""
    files = (WORK / name / "corpus").iterdir()
    cases = {file.read_bytes() for file in files} - set(target(name).seeds)
    lines: list[str] = []
    for case in sorted(cases, key=lambda case: (len(case), case))[:KEPT_MAX]:
        if sum(map(len, lines)) + len(repr(case)) > KEPT_BYTES_MAX:
            break
        lines.append(repr(case))
    (CORPUS / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))


def _row(outcome: Outcome) -> str:
    ended = outcome.broke or "nothing"
    return f"| {outcome.name} | {outcome.cases:,} | {outcome.seconds:,.0f} | {outcome.peak_mib} | {ended} |".replace(
        ",", " "
    )


def _table(outcomes: Sequence[Outcome]) -> str:
    broke = sum(bool(o.broke) for o in outcomes)
    cases, seconds = sum(o.cases for o in outcomes), sum(o.seconds for o in outcomes)
    total = Outcome("all", cases, seconds, max(o.peak_mib for o in outcomes), f"{broke} of them" if broke else "")
    head = ("| target | cases | seconds | peak, MiB | what broke |", "| --- | --- | --- | --- | --- |")
    return "\n".join((*head, *map(_row, outcomes), _row(total)))


def main() -> int:
    """Ends with 1 if anything broke."""
    parser = argparse.ArgumentParser(description="Fuzz every parser of what others write.")
    parser.add_argument("--cases", type=int, default=1_000_000, help="of all targets together")
    parser.add_argument("--only", nargs="*", choices=SHARES, default=list(SHARES), help="these targets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="add the table to the results, and renew the kept corpus")
    asked = parser.parse_args()
    parts = sum(SHARES[name] for name in asked.only)
    outcomes = []
    for name in asked.only:
        outcomes.append(_fuzz(name, max(1, round(asked.cases * SHARES[name] / parts)), asked.seed))
        print(_row(outcomes[-1]), flush=True)
        if asked.write and not outcomes[-1].broke:
            _keep(name)
    if asked.write:
        with RESULTS.open("a") as file:
            file.write(f"\n{time.strftime('%d %B %Y')}, seed {asked.seed}:\n\n{_table(outcomes)}\n")
    print(_table(outcomes))
    return 1 if any(outcome.broke for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
