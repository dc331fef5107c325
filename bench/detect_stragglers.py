"""How often the right rank is named, and nobody where there is none: `python bench/detect_stragglers.py [--seeds 30]`.

Pretended jobs (bench/traces.py), Wilson intervals of 95 %, and four rules of others on the same numbers. Nothing asserted.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.straggler_cases import CASES, HEALTHY, HEALTHY_LARGE, ExpectedVerdict, build_case_columns
from bench.traces import Columns, Fault, Floats, Job, build_columns, draw_compute_times
from remediator.detection.stragglers.repeat_culprits import repeat_culprits_of
from remediator.detection.stragglers.step_trace import build_step_trace
from remediator.detection.stragglers.straggler_judgement import judge_stragglers

Named = frozenset[int]
Rule = Callable[[Floats, Columns], Named]
WARM_UP = 10
STEP_S = 2.0
LATE = 3  # rank that is slow in the jobs with a culprit


def judge_by_detector(_own: Floats, rows: Columns) -> Named:
    """Our verdict."""
    return frozenset(culprit.rank for culprit in judge_stragglers(build_step_trace(rows)).culprits)


def _recent(own: Floats) -> Floats:
    """(R,) medians of the last thirty steps: what a rule that looks now and then would see."""
    return np.asarray(np.median(own[max(WARM_UP, own.shape[0] - 30) :], axis=0))


def _flagged(slow: npt.NDArray[np.bool_]) -> Named:
    return frozenset(np.flatnonzero(slow).tolist())


def twice_the_median(own: Floats, _rows: Columns) -> Named:
    """More than twice the median of all ranks."""
    seen = _recent(own)
    return _flagged(seen > 2 * np.median(seen))


def fastest_rank(own: Floats, _rows: Columns) -> Named:
    """The fastest rank's time over its own is below 0.75."""
    seen = _recent(own)
    return _flagged(seen.min() / seen < 0.75)


def z_score(own: Floats, _rows: Columns) -> Named:
    """More than three standard deviations above the mean of all ranks."""
    seen = _recent(own)
    return _flagged(seen > seen.mean() + 3 * seen.std())


def stage_median(own: Floats, rows: Columns) -> Named:
    """More than 1.10 times the median of its stage."""
    seen = _recent(own)
    stage = np.asarray(rows["stage"]).reshape(own.shape)[0]
    middle = np.array([np.median(seen[stage == number]) for number in stage])
    return _flagged(seen > 1.10 * middle)


RULES: dict[str, Rule] = {
    "ours": judge_by_detector,
    "2 × median": twice_the_median,
    "fastest 0.75": fastest_rank,
    "z-score 3": z_score,
    "stage median 1.10": stage_median,
}


def format_wilson_interval(hits: int, trials: int) -> str:
    """A share with its interval of 95 %."""
    z, share = 1.96, hits / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials**2))
    return f"{share:.2f} [{max(0.0, middle - half):.2f}, {min(1.0, middle + half):.2f}]"


def add_slow_rank(job: Job, slowdown: float, steps: int, course: str = "jump") -> Job:
    """The job with one slow rank in its last `steps`."""
    return replace(job, faults=(Fault(LATE, slowdown, job.steps - steps, course=course),))


FIXED = Job(dp=64, steps=100)
PACKED = Job(dp=64, steps=100, packed=0.12)
PACKED_STAGES = replace(PACKED, dp=32, pp=4)
CULPRIT: dict[str, tuple[Job, bool]] = {
    "15 % slow for 15 steps, fixed length": (add_slow_rank(FIXED, 0.15, 15), False),
    "15 % slow for 30 steps, fixed length": (add_slow_rank(FIXED, 0.15, 30), False),
    "10 % slow for 30 steps, 512 ranks": (add_slow_rank(replace(FIXED, dp=512), 0.10, 30), False),
    "8 % slow since the first step": (add_slow_rank(FIXED, 0.08, 100), False),
    "20 % slow for 30 steps, packed, no token counts": (add_slow_rank(PACKED, 0.20, 30), False),
    "20 % slow for 60 steps, packed, no token counts": (add_slow_rank(PACKED, 0.20, 60), False),
    "20 % slow for 30 steps, packed, token counts": (add_slow_rank(PACKED, 0.20, 30), True),
    "20 % slow for 30 steps, packed, 4 stages": (add_slow_rank(PACKED_STAGES, 0.20, 30), False),
    "10 % slow for 30 steps, packed, token counts": (add_slow_rank(PACKED, 0.10, 30), True),
    "15 % beside a last stage that is 30 % slow": (
        add_slow_rank(Job(dp=16, pp=4, steps=100, stages=(1, 1, 1, 1.3)), 0.15, 30), False),
    "15 % beside a quarter of slower GPUs": (add_slow_rank(replace(FIXED, slow_product=0.25), 0.15, 30), False),
    "18 % among the faster half, the others 20 % slower": (
        replace(FIXED, slow_product=0.5, faults=(Fault(LATE, 0.18),)), False),
    "20 % ramp over 30 steps": (add_slow_rank(FIXED, 0.20, 60, "ramp"), False),
    "20 % on and off": (add_slow_rank(FIXED, 0.20, 80, "flicker"), False),
    "40 % in 2 steps of 10": (
        replace(FIXED, steps=200, faults=(Fault(LATE, 0.40, 40, course="seldom", period=10),)), False),
    "two slow ranks, 15 and 25 %": (replace(FIXED, faults=(Fault(LATE, 0.15, 60), Fault(9, 0.25, 50))), False),
    "a slow node of 8, 15 %": (replace(FIXED, faults=tuple(Fault(rank, 0.15, 60) for rank in range(8))), False),
}  # fmt: skip
NOBODY: dict[str, tuple[Job, bool]] = {
    "healthy, fixed length": (FIXED, False),
    "healthy, 512 ranks": (replace(FIXED, dp=512), False),
    "healthy, packed, no token counts": (PACKED, False),
    "healthy, packed, token counts": (PACKED, True),
    "data imbalance over 4 stages": (PACKED_STAGES, False),
    "last stage 30 % slow": (Job(dp=16, pp=4, steps=100, stages=(1, 1, 1, 1.3)), False),
    "garbage collection every 40 steps": (replace(FIXED, steps=200, gc_every=40), False),
    "rank 0 saves every 10 steps": (replace(FIXED, checkpoint_every=10), False),
    "evaluation every 20 steps": (replace(FIXED, evaluate_every=20), False),
    "half of the nodes another product": (replace(FIXED, slow_product=0.5), False),
    "a quarter of the nodes another product": (replace(FIXED, slow_product=0.25), False),
    "everyone 20 % slower from a step on": (replace(FIXED, everyone=0.2), False),
    "uneven experts": (replace(FIXED, experts=0.1), False),
    "heavy tails (t, 4 degrees, 5 %)": (replace(FIXED, noise=0.05, tail=4), False),
    "noise that lasts (5 %, correlation 0.8)": (replace(FIXED, noise=0.05, drift=0.8), False),
}


def print_scenario_table(title: str, jobs: dict[str, tuple[Job, bool]], seeds: int) -> None:
    """A line a scenario: how often each rule names exactly whom it should."""
    print(f"\n| {title} | {' | '.join(RULES)} |\n|---|{'---:|' * len(RULES)}")
    for name, (job, tokens) in jobs.items():
        truth = frozenset(fault.rank for fault in job.faults)
        right = dict.fromkeys(RULES, 0)
        for seed in range(seeds):
            own, rows = draw_compute_times(job, seed)[0], build_columns(job, seed, tokens=tokens)
            for rule, names in RULES.items():
                right[rule] += names(own, rows) == truth
        print(f"| {name} | {' | '.join(format_wilson_interval(hits, seeds) for hits in right.values())} |", flush=True)


def print_case_table(title: str, cases: dict[str, ExpectedVerdict], seeds: int) -> None:
    """A line a case: how often the verdict is right, how often a wrong rank is named, and what else was said."""
    print(
        f"\n| {title} | right | wrong names | verdicts | confidence | CPU s, at most |\n|---|---:|---:|---|---:|---:|"
    )
    for name, expected in cases.items():
        said: Counter[str] = Counter()
        right = wrong = 0
        sure, used = [], []
        for seed in range(seeds):
            trace = build_step_trace(build_case_columns(expected.case, seed, tokens=expected.tokens))
            began = time.process_time()
            found = judge_stragglers(trace)
            used.append(time.process_time() - began)
            sure.append(found.confidence)
            said[found.verdict.value] += 1
            right += expected.is_met_by(found)
            wrong += not {culprit.rank for culprit in found.culprits} <= expected.case.culprits
        verdicts = ", ".join(f"{kind} {times}" for kind, times in said.most_common())
        print(
            f"| {name} | {right}/{seeds} | {wrong} | {verdicts} | {min(sure):.2f}-{max(sure):.2f} | {max(used):.2f} |",
            flush=True,
        )


def time_to_detect(seeds: int) -> None:
    """Seconds from the first slow step until the rank is named, asked after every step, and the error of the onset."""
    print("\n| | named after, s (median, worst) | first step off by (median, worst) |\n|---|---:|---:|")
    for name, job in (
        ("15 %, fixed length", add_slow_rank(FIXED, 0.15, 40)),
        ("20 %, 5 % noise", add_slow_rank(replace(FIXED, noise=0.05), 0.20, 40)),
    ):
        waits, off = [], []
        since = job.faults[0].since
        for seed in range(seeds):
            trace = build_step_trace(build_columns(job, seed))
            for step in range(since, job.steps):
                found = judge_stragglers(trace.until(step))
                if [culprit.rank for culprit in found.culprits] == [LATE]:
                    waits.append((step + 1 - since) * STEP_S)
                    off.append(abs((found.first_step or 0) - since))
                    break
            else:
                waits.append(math.inf)
        print(
            f"| {name} | {np.median(waits):.0f}, {max(waits):.0f} | {np.median(off):.0f}, {max(off):.0f} |", flush=True
        )


def false_names(jobs: int) -> None:
    """Names in healthy jobs of 64 ranks, a pass every 200 steps, and what three passes together would act upon."""
    print("\n| healthy job of 64 ranks | passes | somebody named | the same in 2 of 3 passes |\n|---|---:|---:|---:|")
    for name, job in (
        ("fixed length", FIXED),
        ("12 % noise, no token counts", replace(FIXED, noise=0.12)),
        ("5 % noise, t with 4 degrees", replace(FIXED, noise=0.05, tail=4)),
    ):
        wrong = acted = passes = 0
        for seed in range(jobs):
            rows = build_columns(replace(job, steps=10 * 200), 10_000 + seed, passes=False)
            found = []
            for first in range(0, 10 * 200, 200):
                step = np.asarray(rows["step"], dtype=np.int64)
                own = (step >= first) & (step < first + 200)
                found.append(judge_stragglers(build_step_trace({key: values[own] for key, values in rows.items()})))
                wrong += bool(found[-1].culprits)
                acted += bool(repeat_culprits_of(found))
                passes += 1
        days = passes * 200 * STEP_S / 86400
        print(
            f"| {name} ({days:.1f} job-days) | {passes} | {format_wilson_interval(wrong, passes)} | {format_wilson_interval(acted, passes)} |",
            flush=True,
        )


SLOW_RANK = 777
LARGE = (
    (100_000, 1, 0.0, False, SLOW_RANK),
    (12_500, 8, 0.0, False, SLOW_RANK),
    (12_500, 8, 0.0, True, SLOW_RANK),
    (12_500, 8, 0.25, True, SLOW_RANK),
    (12_500, 8, 0.25, True, None),  # nobody is slow: every other cause is searched for as well
)
SPEED_STEPS = 30


class Pass(NamedTuple):
    """What passes over the same matrices took, in seconds of processor, whom they named and whom they should, and the ranks' own times."""

    what: str
    cpu_s: list[float]
    named: list[int]
    slow: list[int]
    own: Floats


def large_passes(times: int, jobs: Iterable[tuple[int, int, float, bool, int | None]] = LARGE) -> Iterator[Pass]:
    """Passes over jobs of so many ranks a stage, so many stages, packed or not, telling every section or their own times alone, with a slow rank or none."""
    for dp, pp, packed, whole, slow in jobs:
        faults = () if slow is None else (Fault(slow, 0.2, 5),)
        job = Job(dp=dp, pp=pp, steps=SPEED_STEPS, packed=packed, faults=faults)
        rows = build_columns(job, 0, passes=whole, tokens=whole)
        trace = build_step_trace({name: v for name, v in rows.items() if whole or name not in ("comm_s", "step_s")})
        used, names = [], []
        for _ in range(times):
            began = time.process_time()
            found = judge_stragglers(trace)
            used.append(time.process_time() - began)
            names = [culprit.rank for culprit in found.culprits]
        told = f"{'packed, ' if packed else ''}{'every section, tokens' if whole else 'own times'}"
        what = f"{dp * pp} ranks, {pp} stages, {SPEED_STEPS} steps, {told}{', nobody slow' if slow is None else ''}"
        yield Pass(what, used, names, [] if slow is None else [slow], draw_compute_times(job, 0)[0])


def measure_speed() -> None:
    """CPU seconds of one pass over 100 000 ranks."""
    print("\n| pass | CPU s | named |\n|---|---:|---|")
    for each in large_passes(3):
        print(f"| {each.what} | {min(each.cpu_s):.2f} | {each.named} |", flush=True)


def main() -> None:
    """All tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument(
        "--quiet-jobs", type=int, default=0, help="only count names in so many long healthy jobs of each kind"
    )
    parser.add_argument(
        "--healthy", type=int, default=0, help="only judge so many healthy jobs of each hard kind, a tenth at 512 ranks"
    )
    asked = parser.parse_args()
    if asked.healthy:
        print_case_table("healthy: nobody named, no slow link", HEALTHY, asked.healthy)
        print_case_table("healthy, large: the same", HEALTHY_LARGE, max(1, asked.healthy // 10))
        return
    if asked.quiet_jobs:
        false_names(asked.quiet_jobs)
        return
    print_scenario_table("somebody is slow: exactly the culprits named", CULPRIT, asked.seeds)
    print_scenario_table("nobody is: nobody named", NOBODY, asked.seeds)
    print_case_table("hard cases: the right verdict and names", CASES, asked.seeds)
    time_to_detect(asked.seeds)
    false_names(asked.seeds)
    measure_speed()


if __name__ == "__main__":
    main()
