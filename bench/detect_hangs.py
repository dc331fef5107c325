"""Who is named when a job hangs: precision and recall of the culprits on pretended jobs, against two usual rules of thumb.

    python bench/detect_hangs.py [SEEDS]

For each size and each fault SEEDS jobs (30 by default; a tenth of it at 4096 ranks). A job in which nobody is to blame counts as right if nobody is named.
Precision: named ranks that are culprits. Recall: culprits that are named. Intervals are Wilson's, 95 %.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from math import sqrt

from bench.hang_jobs import FAULTS, KINDS, Job, Layout, make_hang_job
from healthctl.flight_recorder.collective_snapshot import build_snapshot
from remediator.detection.hangs.hang_verdict import judge_hang

LAYOUTS = [
    (Layout(8, 1, 1), Layout(2, 2, 2), Layout(4, 1, 2), Layout(1, 2, 4)),
    (Layout(64, 1, 1), Layout(4, 4, 4), Layout(8, 1, 8), Layout(4, 2, 8)),
    (Layout(512, 1, 1), Layout(16, 4, 8), Layout(64, 1, 8)),
    (Layout(128, 4, 8), Layout(64, 8, 8)),
]
Rule = Callable[[Job], tuple[str, frozenset[int]]]


def judge_by_graph(job: Job) -> tuple[str, frozenset[int]]:
    """Ours."""
    verdict = judge_hang(build_snapshot(job.dumps, job.world))
    return verdict.kind, frozenset(verdict.culprits)


def lowest_number(job: Job) -> tuple[str, frozenset[int]]:
    """Ranks with the lowest sequence number in the biggest group, if not all are equal."""
    last = {
        rank: max((e.number for e in dump.calls if e.group[0] == "0" and not e.is_p2p), default=0)
        for rank, dump in job.dumps.items()
    }
    least, most = min(last.values()), max(last.values())
    return "", frozenset(rank for rank, number in last.items() if number == least) if least < most else frozenset()


def judge_by_reporter(job: Job) -> tuple[str, frozenset[int]]:
    """The rank whose watchdog reported the time-out."""
    return "", frozenset({job.reporter} - {-1})


RULES: dict[str, Rule] = {
    "wait-for graph": judge_by_graph,
    "lowest number in the biggest group": lowest_number,
    "who reported the time-out": judge_by_reporter,
}


def format_wilson_interval(right: int, of: int) -> str:
    """A share with its interval."""
    if not of:
        return "–"
    z, share = 1.96, right / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z * sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return f"{share:.3f} ({max(0.0, middle - half):.3f}–{min(1.0, middle + half):.3f})"


class Count:
    """Of one rule over some jobs."""

    def __init__(self) -> None:
        self.named = self.right = self.culprits = self.jobs = self.exact = self.kind = 0

    def add(self, job: Job, kind: str, named: frozenset[int]) -> None:
        """What the rule said of one job."""
        self.jobs += 1
        self.named += len(named)
        self.right += len(named & job.culprits)
        self.culprits += len(job.culprits)
        self.exact += named == job.culprits
        self.kind += kind == KINDS[job.fault]

    def cells(self) -> str:
        """Precision, recall, exactly right."""
        return f"{format_wilson_interval(self.right, self.named)} | {format_wilson_interval(self.right, self.culprits)} | {format_wilson_interval(self.exact, self.jobs)}"


def format_count_table(title: str, rows: Iterable[tuple[str, Count]], *, kinds: bool = False) -> str:
    """In Markdown."""
    more = " | kind" if kinds else ""
    lines = [
        f"| {title} | jobs | precision | recall | exactly right{more} |",
        "|---|---:|---|---|---" + "|---|" * kinds + "|" * (not kinds),
    ]
    for name, count in rows:
        kind = f" | {format_wilson_interval(count.kind, count.jobs)}" if kinds else ""
        lines.append(f"| {name} | {count.jobs} | {count.cells()}{kind} |")
    return "\n".join(lines)


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    by_rule: dict[str, Count] = defaultdict(Count)
    by_fault: dict[str, Count] = defaultdict(Count)
    by_size: dict[str, Count] = defaultdict(Count)
    astray: dict[str, Count] = defaultdict(Count)
    longest_s = 0.0
    for layouts in LAYOUTS:
        for fault in FAULTS:
            for seed in range(seeds if layouts[0].ranks < 4096 else -(-seeds // 10)):
                fitting = [each for each in layouts if each.stages > 1 or "message" not in fault]
                job = make_hang_job(fitting[seed % len(fitting)], fault, seed)
                for name, rule in RULES.items():
                    began = time.perf_counter()
                    kind, named = rule(job)
                    by_rule[name].add(job, kind, named)
                    if rule is judge_by_graph:
                        longest_s = max(longest_s, time.perf_counter() - began)
                        by_fault[fault].add(job, kind, named)
                        by_size[f"{job.world} ranks"].add(job, kind, named)
                        if named != job.culprits:
                            print(
                                f"{fitting[seed % len(fitting)]} {fault} {seed}: {kind} {sorted(named)[:8]}, not {sorted(job.culprits)}",
                                file=sys.stderr,
                            )
                if job.world == 64:
                    lost = make_hang_job(fitting[seed % len(fitting)], fault, seed, lost=0.02)
                    astray[fault].add(lost, *judge_by_graph(lost))
    print(format_count_table("rule", by_rule.items()), end="\n\n")
    print(format_count_table("wait-for graph", [*by_fault.items(), *by_size.items()], kinds=True), end="\n\n")
    print(format_count_table("2 % of dumps lost", astray.items(), kinds=True), end="\n\n")
    print(f"Longest judgement: {longest_s:.1f} s")


if __name__ == "__main__":
    main()
