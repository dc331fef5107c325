"""What is known of seeds: one JSON line each run, and a table for people."""

from __future__ import annotations

import collections
import statistics
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tests.chaos.campaign import Result


def read(file: Path) -> list[Result]:
    """All runs so far, the oldest first."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [msgspec.json.decode(line, type=Result) for line in lines]


def add(file: Path, result: Result) -> None:
    """One more."""
    with file.open("ab") as ledger:
        ledger.write(msgspec.json.encode(result) + b"\n")


def passed(results: Iterable[Result], commit: str) -> set[int]:
    """Seeds that need not be run again at this commit; none where the tree differs from it."""
    return set() if commit.endswith("+") else {each.seed for each in results if each.passed and each.commit == commit}


def summary(results: list[Result]) -> str:
    """The table in Markdown: how many, which failed and why, how often each disaster struck and ranks were replaced, how long it took."""
    if not results:
        return "No runs.\n"
    latest = {result.seed: result for result in results}
    failed = [result for result in latest.values() if not result.passed]
    struck = collections.Counter(name for result in latest.values() for name in result.disasters)
    swaps = sum((collections.Counter(result.swaps) for result in latest.values()), collections.Counter[str]())
    seconds, cpu = ([getattr(result, name) for result in latest.values()] for name in ("seconds", "cpu_s"))
    took = f"A run took {statistics.median(seconds):.0f} s (median) and {statistics.median(cpu):.1f} s of processor time (mean {statistics.mean(cpu):.1f} s); "
    took += f"the longest {max(seconds):.0f} s and {max(cpu):.1f} s."
    lines = [
        f"{len(latest)} seeds, {len(failed)} failed. {took}",
        "",
        "| disaster | struck |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in sorted(struck.items())),
        "",
        "| launcher | times |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in sorted(swaps.items())),
    ]
    if failed:
        lines += ["", "| seed | commit | plan | invariant | what is wrong |", "|---|---|---|---|---|"]
        lines += [
            f"| {result.seed} | {result.commit} | {result.plan} | {name} | {wrong[0]} |"
            for result in failed
            for name, wrong in result.verdicts.items()
            if wrong
        ]
    return "\n".join(lines) + "\n"
