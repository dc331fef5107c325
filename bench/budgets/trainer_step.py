"""What a training step pays for being watched."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from bench import nvrx
from bench.report.records import Beside, Budget, Effort, Figure, Measured, at_most, split_into_repeats, summarise_values
from bench.trainer import guard_steps, open_guard, samples_of

LIMITS_US = {
    "a step": 2.0,
    "a step, one section": 20.0,
    "a step, all seven sections": 20.0,
    "a step, all seven sections and a report": 20.0,
}


def measure_trainer_step(effort: Effort) -> Measured:
    """Time single steps, and what NVIDIA's extension does where it is installed."""
    calls = effort.either(20_000, 50_000)
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=folder) as directory, open_guard(directory) as (_, guard):
        steps = guard_steps(guard)
        repeats = {
            name: tuple(summarise_values(samples_of(steps[name], calls), 1e-3) for _ in range(effort.repeats))
            for name in LIMITS_US
        }
        floor = Beside("two looks at the clock", statistics.median(samples_of(_two_looks, calls)) * 1e-3)
        theirs = {
            name: statistics.median(samples_of(call, count)) * 1e-3
            for name, call, count in nvrx.iterate_nvrx_calls(directory)
        }
    figures = [
        Figure(named=name, unit="µs", repeats=repeats[name], limits=at_most(p50=limit), beside=floor)
        for name, limit in LIMITS_US.items()
    ]
    figures += [Figure(named=name, unit="µs", repeats=split_into_repeats([us])) for name, us in theirs.items()]
    return Measured(
        figures=tuple(figures),
        how=(
            f"Host time of {calls:,} steps of the guard around nothing, each timed by itself, without the look at the clock. The limit is held against "
            f"the median; p99 tells of the neighbours. {'' if theirs else 'nvidia-resiliency-ext is not installed, so not compared.'}"
        ).rstrip(),
        because="two thirds of a step are three checked writes of Python into the page, and how long those take is this processor's speed and load",
        moves="a quiet or quicker processor; a writer in C, which would cost the light import",
    )


def _two_looks() -> None:
    time.perf_counter()
    time.perf_counter()


BUDGET = Budget(
    "trainer-step",
    "Host time of a training step under the guard",
    "≤ 2 µs without timed sections, ≤ 20 µs with",
    measure_trainer_step,
)
