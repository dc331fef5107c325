"""How often the training watchdogs are wrong, and how soon they are right: `python -m bench.watchdogs [--seeds 10]`.

Pretended jobs (bench/training_jobs.py) of 18 000 steps, the rules as they are and as they were until November 2026, on the
same numbers. A fault begins at step 9000. Nothing asserted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bench.training_jobs import (
    FAULT_AT,
    GRADIENT_FAULTS,
    GRADIENTS,
    LOSS_FAULTS,
    LOSSES,
    TIME_FAULTS,
    TIMES,
    Draw,
    Floats,
    with_fault,
)
from healthd.thresholds import load_thresholds
from healthd.training.robust_series import TO_SIGMA, RobustSeries, SeriesMemory, UsualRange, compute_median
from healthd.training.slowdown_detection import Slowdown
from healthd.training.spike_detection import GradientSpikes, LossSpikes
from healthd.training.watchdog_limits import Limits

LIMITS = load_thresholds().section("training", Limits)
WARM_UP = LIMITS.warm_up_steps
Rule = Callable[[Floats], Iterator[bool]]  # the numbers of the steps: after each, whether the finding holds


class Found(NamedTuple):
    """`false`: alarms without a fault, or before it. `delays`: in steps, of the faults that were found."""

    false: int
    delays: list[int]


class _OldLoss(RobustSeries):
    """The spread was told from step to step only."""

    def _refresh(self) -> None:
        before = self.usual
        super()._refresh()
        if self.usual is not None and self.usual is not before:
            noise = compute_median([abs(b - a) for a, b in pairwise(self._past)])
            self.usual = UsualRange(self.usual.centre, TO_SIGMA * noise / 2**0.5)


def _old_loss(value: float, usual: UsualRange) -> bool | None:
    above = (value - usual.centre) / max(usual.spread, 0.01 * abs(usual.centre))
    return True if above > 10 else False if above <= 5 else None


def _old_gradient(value: float, usual: UsualRange) -> bool | None:
    times = value / usual.centre
    return True if times > 10 else False if times <= 5 else None


def _old_rate(value: float, usual: UsualRange) -> bool | None:
    return True if value < 0.8 * usual.centre else False if value >= 0.9 * usual.centre else None


def loss_before(values: Floats) -> Iterator[bool]:
    """The loss, as it was."""
    series = _OldLoss(SeriesMemory(1, 256, 64, 5, 20, 2000), _old_loss)
    for value in values[WARM_UP:].tolist():
        series.add(value)
        yield bool(series.holds)


def loss_now(values: Floats) -> Iterator[bool]:
    """The loss, as it is."""
    spikes = LossSpikes(LIMITS)
    for value in values[WARM_UP:].tolist():
        spikes.add(value)
        yield bool(spikes.holds)


def gradient_before(values: Floats) -> Iterator[bool]:
    """The gradient norm, as it was."""
    series = RobustSeries(SeriesMemory(1, 256, 64, 2, 20, 2000), _old_gradient)
    for value in values[WARM_UP:].tolist():
        series.add(value)
        yield bool(series.holds)


def gradient_now(values: Floats) -> Iterator[bool]:
    """The gradient norm, as it is; the first steps count where they are not finite."""
    spikes = GradientSpikes(LIMITS)
    for step, value in enumerate(values.tolist()):
        spikes.add(value, warm=step >= WARM_UP)
        if step >= WARM_UP:
            yield bool(spikes.holds)


def rate_before(values: Floats) -> Iterator[bool]:
    """The rate, as it was."""
    series = RobustSeries(SeriesMemory(30, 256, 64, 30, 30, 2000), _old_rate)
    for value in values[WARM_UP:].tolist():
        series.add(1 / value)
        yield bool(series.holds)


def rate_now(values: Floats) -> Iterator[bool]:
    """The rate, as it is."""
    slowdown = Slowdown(LIMITS)
    for value in values[WARM_UP:].tolist():
        slowdown.add(1 / value)
        yield bool(slowdown.holds)


def list_alarm_steps(rule: Rule, values: Floats) -> list[int]:
    """At which steps it was raised."""
    raised, before = [], False
    for step, holds in enumerate(rule(values), WARM_UP):
        if holds and not before:
            raised.append(step)
        before = holds
    return raised


def try_rule(rule: Rule, draw: Draw, fault: Callable[[Floats], Floats] | None, seeds: int) -> Found:
    """One rule on the jobs of so many seeds."""
    false, delays = 0, []
    for seed in range(seeds):
        values = draw(np.random.default_rng(seed))
        if fault is None:
            false += len(list_alarm_steps(rule, values))
            continue
        raised = list_alarm_steps(rule, with_fault(values, fault))
        false += sum(step < FAULT_AT for step in raised)
        delays += [step - FAULT_AT + 1 for step in raised if step >= FAULT_AT][:1]
    return Found(false, delays)


def healthy_table(draws: dict[str, Draw], before: Rule, now: Rule, seeds: int) -> Iterator[str]:
    """Alarms of jobs without a fault."""
    yield "| job without a fault | alarms in 18 000 steps, before | now |"
    yield "|---|---:|---:|"
    for name, draw in draws.items():
        counts = [try_rule(rule, draw, None, seeds).false / seeds for rule in (before, now)]
        yield f"| {name} | {counts[0]:.1f} | {counts[1]:.1f} |"


def fault_table(
    draws: dict[str, Draw], faults: dict[str, Callable[[Floats], Floats]], before: Rule, now: Rule, seeds: int
) -> Iterator[str]:
    """How many faults are found, and after how many steps."""
    yield "| fault | job | found before | steps until then (median, most) | found now | steps until then (median, most) |"
    yield "|---|---|---:|---:|---:|---:|"
    for fault_name, fault in faults.items():
        for name, draw in draws.items():
            cells = []
            for rule in (before, now):
                delays = try_rule(rule, draw, fault, seeds).delays
                told = f"{statistics.median(delays):.0f}, {max(delays)}" if delays else "–"
                cells.append(f"{len(delays)}/{seeds} | {told}")
            yield f"| {fault_name} | {name} | {' | '.join(cells)} |"


def cost_lines(seeds: int) -> Iterator[str]:
    """Processor time of a step."""
    for name, draw, rules in (
        ("loss", LOSSES["normal noise"], (loss_before, loss_now)),
        ("gradient norm", GRADIENTS["without a loss scale"], (gradient_before, gradient_now)),
        ("rate", TIMES["5 %"], (rate_before, rate_now)),
    ):
        values, spent = draw(np.random.default_rng(seeds)), []
        for rule in rules:
            began = time.process_time()
            deque(rule(values), maxlen=0)
            spent.append((time.process_time() - began) / len(values) * 1e6)
        yield f"| {name} | {spent[0]:.1f} | {spent[1]:.1f} |"


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="jobs of each kind")
    seeds = parser.parse_args().seeds
    for title, draws, faults, before, now in (
        ("The loss", LOSSES, LOSS_FAULTS, loss_before, loss_now),
        ("The gradient norm", GRADIENTS, GRADIENT_FAULTS, gradient_before, gradient_now),
        ("The rate", TIMES, TIME_FAULTS, rate_before, rate_now),
    ):
        print(f"\n## {title}\n")
        print("\n".join(healthy_table(draws, before, now, seeds)), end="\n\n", flush=True)
        print("\n".join(fault_table(draws, faults, before, now, seeds)), flush=True)
    print("\n## Cost\n\n| number | µs of a step, before | now |\n|---|---:|---:|")
    print("\n".join(cost_lines(seeds)))


if __name__ == "__main__":
    main()
