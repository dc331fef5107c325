"""Runs of many seeds, several at once, each in namespaces of its own; what came of each goes into a ledger."""

from __future__ import annotations

import collections
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec

from tests.chaos.checker.invariants import check
from tests.chaos.plan import Plan
from tests.nodes.fake_nvml.build import build

ROOT = Path(__file__).resolve().parents[2]
RUN_S = 420.0
SWAPS = ("rank_lost", "swapped", "shrunk", "grown", "resumed", "swap_impossible")
PROGRAMS = ("unshare", "nsenter", "mount", "ip", "tc", "iptables", "cc")
SBIN = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"
NAMESPACES = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the ledger. `verdicts`: of each invariant what is wrong, nothing if it holds; `swaps`: what the launcher did, how often."""

    seed: int
    commit: str
    plan: str
    passed: bool
    verdicts: dict[str, list[str]]
    disasters: list[str]
    seconds: float
    cpu_s: float
    swaps: dict[str, int] = {}


def commit() -> str:
    """The commit that is tried, with a plus sign if the tree differs from it."""
    head = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    houses = ["vocabulary", "healthd", "remediator", "healthctl", "playbooks", "tests/chaos"]
    dirty = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *houses], cwd=ROOT, check=False).returncode
    return head.stdout.strip() + ("+" if dirty else "")


def why_not() -> str:
    """Why runs cannot be had here; empty if they can."""
    missing = [program for program in PROGRAMS if shutil.which(program, path=SBIN) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    done = subprocess.run(
        [*NAMESPACES, "mount", "-t", "tmpfs", "tmpfs", "/run"], capture_output=True, text=True, check=False
    )
    words = done.stderr.strip().splitlines()
    return f"no namespaces and mounts of our own: {words[-1] if words else 'no word'}" if done.returncode else ""


_building = threading.Lock()


def run_plan(plan: Plan, place: Path, at: str) -> Result:
    """One plan from its beginning to its verdict, below `place`, which must not exist yet; `at` is the commit."""
    place.mkdir(parents=True)
    (place / "plan.json").write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=1))
    with _building:  # several runs begin at once, and one of them compiles
        library = build(place.parent)
    began = time.monotonic()
    with (place / "run.log").open("wb") as log:
        command = [*NAMESPACES, sys.executable, "-m", "tests.chaos.run_execution", str(place), str(library)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            process.wait(RUN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    seconds = time.monotonic() - began
    verdicts, cpu_s = {"the run itself": [_last_words(place)]}, 0.0
    if (place / "end.json").exists():
        verdicts = check(place)
        cpu_s = float(json.loads((place / "end.json").read_text())["cpu_s"])
    return Result(
        seed=plan.seed,
        commit=at,
        plan=plan.digest,
        passed=not any(verdicts.values()),
        verdicts=verdicts,
        disasters=[strike.disaster for strike in plan.strikes],
        seconds=round(seconds, 1),
        cpu_s=cpu_s,
        swaps=_count_swaps(place),
    )


def _count_swaps(place: Path) -> dict[str, int]:
    file = place / "journal" / "launcher.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return dict(collections.Counter(kind for kind in (json.loads(line)["event"] for line in lines) if kind in SWAPS))


def _last_words(place: Path) -> str:
    words = (place / "run.log").read_text(errors="replace").strip().splitlines()
    return f"it did not come to its end: {words[-1] if words else 'no word'}"
