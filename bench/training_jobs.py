"""Pretended numbers of a rank's steps for `bench/watchdogs.py`: losses, gradient norms and step times with the noise that jobs have.

Each function draws `STEPS` numbers from a generator; `FAULT_AT` is where `with_fault` begins to change them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator], Floats]
STEPS = 18_000
FAULT_AT = 9_000
NUMBERS = np.arange(STEPS)


def _falling() -> Floats:
    return np.asarray(2 + 9 * np.exp(-NUMBERS / 400), np.float64)


def _autocorrelated(dice: np.random.Generator, keeps: float, spread: float) -> Floats:
    noise = dice.normal(0, spread * np.sqrt(1 - keeps**2), STEPS)
    for step in range(1, STEPS):
        noise[step] += keeps * noise[step - 1]
    return np.asarray(noise, np.float64)


def _runs(dice: np.random.Generator, length: float, gap: float, heights: tuple[float, float], kinds: int = 0) -> Floats:
    """Runs of about `length` steps, about `gap` apart, each as high as one of so many `kinds`; 0: as any height."""
    known = dice.uniform(*heights, kinds)
    lifted, step = np.zeros(STEPS), int(dice.exponential(gap))
    while step < STEPS:
        steps = 1 + int(dice.exponential(length))
        lifted[step : step + steps] = dice.choice(known) if kinds else dice.uniform(*heights)
        step += steps + int(dice.exponential(gap))
    return np.asarray(lifted, np.float64)


LOSSES: dict[str, Draw] = {
    "normal noise": lambda dice: _falling() + dice.normal(0, 0.06, STEPS),
    "heavy tails (Student's t, 3 degrees)": lambda dice: _falling() + 0.06 * dice.standard_t(3, STEPS),
    "heavier tails (1.5 degrees)": lambda dice: _falling() + 0.04 * np.abs(dice.standard_t(1.5, STEPS)),
    "noise that lasts (20 steps)": lambda dice: (
        _falling() + _autocorrelated(dice, 0.95, 0.15) + dice.normal(0, 0.03, STEPS)
    ),
    "one bad batch in a hundred": lambda dice: (
        _falling() + dice.normal(0, 0.06, STEPS) + 4 * (dice.random(STEPS) < 0.01)
    ),
    "domain runs of 12 steps, 50 apart": lambda dice: (
        _falling() + dice.normal(0, 0.04, STEPS) + _runs(dice, 12, 50, (0.5, 1.2), 4)
    ),
    "domain runs of 40 steps, 200 apart": lambda dice: (
        _falling() + dice.normal(0, 0.04, STEPS) + _runs(dice, 40, 200, (0.5, 1.2), 4)
    ),
    "domain runs of 40 steps, any height": lambda dice: (
        _falling() + dice.normal(0, 0.04, STEPS) + _runs(dice, 40, 200, (0.3, 1.5))
    ),
    "domain runs of 300 steps, 300 apart": lambda dice: (
        _falling() + dice.normal(0, 0.04, STEPS) + _runs(dice, 300, 300, (0.5, 1.2), 4)
    ),
}

LOSS_FAULTS: dict[str, Callable[[Floats], Floats]] = {
    "spike of +4, 40 steps": lambda after: after + 4 * (np.arange(len(after)) < 40),
    "jump of +3 that stays": lambda after: after + 3,
    "divergence, +0.05 a step": lambda after: after + 0.05 * np.arange(len(after)),
}


def _scaled(dice: np.random.Generator, first: float, interval: int, hysteresis: int = 1) -> Floats:
    """Gradient norms under a loss scale of 2^`first` that doubles after `interval` good steps. Logarithms are of base 2.

    The largest scale that fits wanders, and falls by up to a factor of 16 for runs of batches.
    """
    fits = 13 + _autocorrelated(dice, 0.999, 0.7) - _runs(dice, 30, 1000, (0, 4))
    norms = dice.lognormal(0, 0.5, STEPS) * (1 + 10 * np.exp(-NUMBERS / 30))
    scale, good, left = first, 0, hysteresis
    for step in range(STEPS):
        if scale > fits[step]:
            norms[step], good, left = np.inf, 0, left - 1
            scale -= left <= 0
            continue
        good += 1
        if good == interval:
            scale, good, left = scale + 1, 0, hysteresis
    return np.asarray(norms, np.float64)


GRADIENTS: dict[str, Draw] = {
    "without a loss scale": lambda dice: dice.lognormal(0, 0.5, STEPS) * (1 + 10 * np.exp(-NUMBERS / 30)),
    "heavy tails": lambda dice: np.exp(0.5 * dice.standard_t(4, STEPS)),
    "GradScaler (2^16, 2000 steps)": lambda dice: _scaled(dice, 16, 2000),
    "GradScaler, growing every 100 steps": lambda dice: _scaled(dice, 16, 100),
    "from 2^32, hysteresis 2": lambda dice: _scaled(dice, 32, 1000, 2),
}

GRADIENT_FAULTS: dict[str, Callable[[Floats], Floats]] = {
    "20 times as high, 40 steps": lambda after: after * np.where(np.arange(len(after)) < 40, 20, 1),
    "NaN that stays": lambda after: np.full(len(after), np.nan),
}


def _times(log_noise: Floats) -> Floats:
    return np.asarray(2 * np.exp(log_noise), np.float64)


def _bursts(dice: np.random.Generator, every: int, steps: int, times: float) -> Floats:
    """So many steps slower by `times` after every `every`th, as after a save that goes on in the background."""
    slow = (NUMBERS + int(dice.integers(every))) % every < steps
    return np.asarray(np.log(times) * slow, np.float64)


TIMES: dict[str, Draw] = {
    "even steps (1 %)": lambda dice: _times(dice.normal(0, 0.01, STEPS)),
    "5 %": lambda dice: _times(dice.normal(0, 0.05, STEPS)),
    "packed sequences (12 %)": lambda dice: _times(dice.normal(0, 0.12, STEPS)),
    "heavy tails (Student's t, 3 degrees, 4 %)": lambda dice: _times(0.04 * dice.standard_t(3, STEPS)),
    "two lengths of step (1 : 1.5)": lambda dice: _times(
        np.log(1.5) * (dice.random(STEPS) < 0.3) + dice.normal(0, 0.02, STEPS)
    ),
    "noise that lasts (100 steps, 2 %)": lambda dice: _times(
        _autocorrelated(dice, 0.99, 0.02) + dice.normal(0, 0.03, STEPS)
    ),
    "saves and evaluations within steps": lambda dice: _times(
        dice.normal(0, 0.05, STEPS) + _bursts(dice, 150, 1, 20) + _bursts(dice, 400, 1, 150)
    ),
    "20 slow steps after each save (1.3 times)": lambda dice: _times(
        dice.normal(0, 0.03, STEPS) + _bursts(dice, 500, 20, 1.3)
    ),
    "garbage collection (2 % of steps, 3 times)": lambda dice: _times(
        dice.normal(0, 0.03, STEPS) + np.log(3) * (dice.random(STEPS) < 0.02)
    ),
}


def _slower(percent: float) -> Callable[[Floats], Floats]:
    return lambda after: after * (1 + percent / 100)


TIME_FAULTS = {f"+{percent} %": _slower(percent) for percent in (5, 10, 12, 20, 100)}


def with_fault(values: Floats, fault: Callable[[Floats], Floats]) -> Floats:
    """The same numbers, changed from `FAULT_AT` on."""
    return np.concatenate([values[:FAULT_AT], fault(values[FAULT_AT:])])
