"""What a training step pays for being watched."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from bench import nvrx
from bench.report.records import Beside, Budget, Effort, Figure, Measured, at_most, split_into_repeats, summarise_values
from bench.trainer import guard_steps, open_guard, samples_of, step_writers

STEPS = ("a step", "a step, one section", "a step, all seven sections", "a step, all seven sections and a report")
LIMITS_US = {"Python": (2.0, 20.0), "C": (0.6, 5.0)}  # a step without timed sections; with any


def measure_trainer_step(effort: Effort) -> Measured:
    """Time single steps, and what NVIDIA's extension does where it is installed."""
    calls = effort.either(20_000, 50_000)
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=folder) as directory:
        floor = Beside("two looks at the clock", statistics.median(samples_of(_two_looks, calls)) * 1e-3)
        figures = [
            _measure_step(directory, name, writer, calls, effort.repeats, floor)
            for writer in step_writers()
            for name in STEPS
        ]
        theirs = {
            name: statistics.median(samples_of(call, count)) * 1e-3
            for name, call, count in nvrx.iterate_nvrx_calls(directory)
        }
    figures += [Figure(named=name, unit="µs", repeats=split_into_repeats([us])) for name, us in theirs.items()]
    return Measured(
        figures=tuple(figures),
        how=(
            f"Host time of {calls:,} steps of the guard around nothing, each timed by itself, without the look at the clock. The limit is held against "
            f"the median; p99 tells of the neighbours. {'' if theirs else 'nvidia-resiliency-ext is not installed, so not compared.'}"
        ).rstrip(),
        because="of a step in Python, two thirds are three checked writes into the page and three looks at the clock: how long those take is this processor's speed and load",
        moves="a quiet or quicker processor; in Python, installing where a C compiler is",
    )


def _measure_step(directory: str, name: str, writer: str, calls: int, repeats: int, floor: Beside) -> Figure:
    with open_guard(directory, step_writers()[writer]) as (_, guard):
        step = guard_steps(guard)[name]
        values = tuple(summarise_values(samples_of(step, calls), 1e-3) for _ in range(repeats))
    plain, sections = LIMITS_US[writer]
    limit = plain if name == STEPS[0] else sections
    return Figure(named=f"{name}, in {writer}", unit="µs", repeats=values, limits=at_most(p50=limit), beside=floor)


def _two_looks() -> None:
    time.perf_counter()
    time.perf_counter()


BUDGET = Budget(
    "trainer-step",
    "Host time of a training step under the guard",
    "≤ 2 µs without timed sections, ≤ 20 µs with; with the extension in C ≤ 0.6 and ≤ 5 µs",
    measure_trainer_step,
)
