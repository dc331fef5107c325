"""Who is named when a GPU fails inside a collective, and in jobs that move: culprits from dumps with and without timing.

    python -m bench.detect_gpu_errors [SEEDS]

Prints a table of `bench/collective_timeline.py`'s cases. A line is right if exactly the culprits are named; `false`: jobs
in which an innocent rank is named. For a GPU that hangs in its own kernel without timing, right means that nobody is named
and that the group shown holds the culprit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bench.collective_timeline import Case, Timeline, make_timeline
from bench.detect_hangs import format_wilson_interval
from healthctl.flight_recorder.collective_snapshot import build_snapshot
from remediator.detection.hangs.hang_verdict import judge_hang


def list_cases() -> Iterator[Case]:
    """All combinations that differ."""
    for timed in (True, False):
        for active_only in (False, True):
            for goes_on in (False, True):
                for culprits in (1, 2):
                    yield Case("gpu error", timed, active_only, goes_on, culprits)
            for fault in ("gpu hung in its kernel", "cpu stuck", "lost in the network", "moving"):
                yield Case(fault, timed, active_only)


def judge_timeline(job: Timeline) -> tuple[bool, bool]:
    """Return whether the verdict is exactly right, and whether it names an innocent rank."""
    snapshot = build_snapshot(job.dumps, job.world)
    verdict = judge_hang(snapshot)
    named = set(verdict.culprits)
    if job.case.fault == "gpu hung in its kernel" and not job.case.timed:
        shown = verdict.root is not None and job.culprits <= set(snapshot.groups[verdict.root.group].members)
        return shown and not named - job.culprits, bool(named - job.culprits)
    return named == job.culprits, bool(named - job.culprits)


def main() -> None:
    """Print the table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print("| case | timing | active only | program | culprits | jobs | exactly right | false |")
    print("|---|---|---|---|---:|---:|---|---|")
    for case in list_cases():
        found = [judge_timeline(make_timeline(case, seed)) for seed in range(seeds)]
        right, false = (sum(each[place] for each in found) for place in (0, 1))
        program = ("goes on" if case.goes_on else "stops") if case.fault == "gpu error" else ""
        cells = [case.fault, "yes" if case.timed else "no", "yes" if case.active_only else "no", program]
        culprits = case.culprits if case.fault not in ("moving", "lost in the network") else 0
        shares = (format_wilson_interval(right, seeds), format_wilson_interval(false, seeds))
        print(f"| {' | '.join(cells)} | {culprits} | {seeds} | {' | '.join(shares)} |", flush=True)


if __name__ == "__main__":
    main()
