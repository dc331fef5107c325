"""What training does by design and what only looks like a fault raises little or nothing; the faults beside it are found."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from bench.training_jobs import (
    FAULT_AT,
    GRADIENTS,
    LOSS_FAULTS,
    LOSSES,
    TIME_FAULTS,
    TIMES,
    Draw,
    Floats,
    with_fault,
)
from bench.watchdogs import Rule, gradient_now, list_alarm_steps, loss_now, rate_now
from healthd.thresholds import load_thresholds
from healthd.training.slowdown_detection import Slowdown
from healthd.training.spike_detection import GradientSpikes, LossSpikes
from healthd.training.watchdog_limits import Limits

LIMITS = load_thresholds().section("training", Limits)
SEED = 101  # the limits were not set with it in view
DOMAIN_RUNS_MOST = 5  # the first runs of a kind are news, once each


def raised(rule: Rule, draw: Draw, fault: Callable[[Floats], Floats] | None = None) -> list[int]:
    values = draw(np.random.default_rng(SEED))
    return list_alarm_steps(rule, with_fault(values, fault) if fault else values)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_without_a_fault(name: str) -> None:
    assert len(raised(loss_now, LOSSES[name])) <= (DOMAIN_RUNS_MOST if "domain" in name else 0)


@pytest.mark.parametrize("fault", LOSS_FAULTS)
@pytest.mark.parametrize("name", LOSSES)
def test_faults_of_the_loss_are_found_also_among_domain_runs(name: str, fault: str) -> None:
    found = [step for step in raised(loss_now, LOSSES[name], LOSS_FAULTS[fault]) if step >= FAULT_AT]
    assert found[0] < FAULT_AT + (60 if "divergence" in fault else 6)


@pytest.mark.parametrize("name", [name for name in GRADIENTS if "tails" not in name])
def test_loss_scales_that_come_down_raise_nothing(name: str) -> None:
    assert raised(gradient_now, GRADIENTS[name]) == []


@pytest.mark.parametrize("name", TIMES)
def test_step_times_without_a_fault(name: str) -> None:
    assert raised(rate_now, TIMES[name]) == []


@pytest.mark.parametrize("fault", ["+10 %", "+12 %", "+20 %", "+100 %"])
@pytest.mark.parametrize("name", TIMES)
def test_a_slowdown_of_a_tenth_is_found(name: str, fault: str) -> None:
    found = [step for step in raised(rate_now, TIMES[name], TIME_FAULTS[fault]) if step >= FAULT_AT]
    assert len(found) >= 1
    noise = "lengths" in name or "lasts" in name or "packed" in name
    assert found[0] < FAULT_AT + (400 if noise else 80)


@pytest.mark.parametrize("name", ["even steps (1 %)", "5 %", "packed sequences (12 %)"])
def test_a_slowdown_of_a_twentieth_is_none(name: str) -> None:
    assert raised(rate_now, TIMES[name], TIME_FAULTS["+5 %"]) == []


def holds_after(norms: Iterable[float], *, warm_from: int = LIMITS.warm_up_steps) -> list[bool | None]:
    spikes, held = GradientSpikes(LIMITS), []
    for step, norm in enumerate(norms):
        spikes.add(norm, warm=step >= warm_from)
        held.append(spikes.holds)
    return held


GOOD = [1.0, 1.2] * 60


@pytest.mark.parametrize("overflows", [1, 2, 5, LIMITS.overflow_steps])
def test_overflows_that_end_are_no_alarm(overflows: int) -> None:
    assert True not in holds_after([*GOOD, *[math.inf] * overflows, *GOOD] * 5)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_overflows_that_do_not_end_are_one_and_clear_after_finite_ones(value: float) -> None:
    held = holds_after([*GOOD, *[value] * 50, *GOOD])
    first = held.index(True)
    assert first == len(GOOD) + LIMITS.overflow_steps
    last = len(GOOD) + 50 + LIMITS.spike_clear_steps - 1
    assert held[first:last] == [True] * (last - first)
    assert True not in held[last:]


def test_a_first_loss_scale_may_take_long_to_come_down_but_not_for_ever() -> None:
    assert True not in holds_after([*[math.inf] * LIMITS.overflow_start_steps, *GOOD])
    assert holds_after([math.nan] * 60).index(True) == LIMITS.overflow_start_steps


def test_an_overflow_between_high_norms_does_not_hide_them() -> None:
    assert holds_after([*GOOD, 40.0, math.inf, 40.0])[-1] is True


def loss_alarms(values: Iterable[float]) -> list[int]:
    return list_alarm_steps(loss_now, np.array([2.0] * LIMITS.warm_up_steps + list(values)))


def noisy(level: float, steps: int, dice: random.Random) -> list[float]:
    return [level + dice.gauss(0, 0.05) for _ in range(steps)]


def test_an_excursion_that_comes_back_is_raised_once_a_higher_or_much_longer_one_anew() -> None:
    dice = random.Random(1)  # noqa: S311 - a simulation
    usual = noisy(2.0, 200, dice)
    run = noisy(3.0, 30, dice)
    assert len(loss_alarms([*usual, *run, *usual])) == 1
    again = [*usual, *run] * 6
    assert len(loss_alarms(again)) == 1
    assert len(loss_alarms([*again, *usual, *noisy(4.0, 30, dice), *usual])) == 2
    assert len(loss_alarms([*again, *usual, *noisy(3.0, 300, dice), *usual])) == 2
    assert len(loss_alarms([*again, *usual * 200, *run, *usual])) == 2  # forgotten by then


def test_a_spike_that_doubled_the_loss_hides_none_after_it() -> None:
    dice = random.Random(1)  # noqa: S311 - a simulation
    usual = noisy(2.0, 200, dice)
    for height in (8.0, 1e6, 1e308):
        assert len(loss_alarms([*usual, *noisy(height, 30, dice), *usual, *noisy(6.0, 30, dice), *usual])) == 2


def test_a_loss_that_stays_between_high_and_low_after_a_spike_becomes_the_usual_one() -> None:
    dice = random.Random(1)  # noqa: S311 - a simulation
    between = noisy(2.37, LIMITS.settle_steps + 200, dice)
    spikes = LossSpikes(LIMITS)
    for value in [*noisy(2.0, 200, dice), *noisy(4.0, 10, dice)]:
        spikes.add(value)
    assert spikes.holds
    for value in between:
        spikes.add(value)
    assert not spikes.holds


def test_a_single_bad_batch_teaches_nothing() -> None:
    dice = random.Random(1)  # noqa: S311 - a simulation
    usual = noisy(2.0, 200, dice)
    assert len(loss_alarms([*usual, 50.0, *usual, *noisy(4.0, 10, dice), *usual])) == 1


def test_a_loss_that_stays_high_becomes_the_usual_one_and_the_next_rise_is_told_from_there() -> None:
    dice = random.Random(1)  # noqa: S311 - a simulation
    steps = LIMITS.settle_steps + 200
    values = [*noisy(2.0, 200, dice), *noisy(3.0, steps, dice), *noisy(8.0, 10, dice)]
    spikes = LossSpikes(LIMITS)
    held = []
    for value in values:
        spikes.add(value)
        held.append(spikes.holds)
    assert held[200 + steps - 1] is False
    assert held[-1] is True


def test_a_slowdown_that_lasts_is_raised_once_and_then_usual() -> None:
    dice = random.Random(1)  # noqa: S311 - a simulation
    slowdown, held = Slowdown(LIMITS), []
    for step in range(6000):
        slowdown.add((1.0 if step < 1000 else 0.5) * dice.lognormvariate(0, 0.03))
        held.append(bool(slowdown.holds))
    assert sum(now and not before for before, now in itertools.pairwise(held)) == 1
    assert held[2000]
    assert not held[-1]


def test_a_job_that_becomes_fast_again_clears_and_keeps_its_usual_rate() -> None:
    dice = random.Random(1)  # noqa: S311 - a simulation
    slowdown, held = Slowdown(LIMITS), []
    for step in range(2400):
        slowdown.add((0.8 if 1000 <= step < 1400 or step >= 2000 else 1.0) * dice.lognormvariate(0, 0.03))
        held.append(bool(slowdown.holds))
    assert held[1200]
    assert not held[1900]
    assert held[2200]
    assert slowdown.usual is not None
    assert slowdown.usual.centre == pytest.approx(1.0, abs=0.02)
