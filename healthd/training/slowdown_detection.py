"""Detects a job that has become slower, by as little as a tenth, despite the noise of its steps.

Uses CUSUM (Page 1954) over the logarithm of the rate: each step adds how much it was slower than usual, less half of
the slowdown to detect. Noise alone keeps falling back to zero, and the required sum follows from the job's own noise. A
short and heavy disturbance also adds up, so the slowdown must be present in both of the two newest windows.
"""

from __future__ import annotations

from collections import deque
from math import exp, isfinite, log, sqrt

from healthd.training.robust_series import TO_SIGMA, UsualRange, compute_median
from healthd.training.watchdog_limits import Limits

BLOCK_STEPS = 32
BLOCKS = 64  # the reference then follows a job over some 2000 steps: slower than a creeping slowdown
BLOCKS_WAITING = 4  # the newest blocks are not in it yet
BLOCKS_FOR_NOISE = 8  # from fewer block means their spread is not known
OUTLIER_SPREADS = 3
OUTLIER_LEAST = 0.25  # in logarithms: in a job of even steps a slowdown must not count as an outlier


class Slowdown:
    """The rate of one rank's steps. `value` and `usual` are what the last judgement compared, as rates."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._drop = -log(limits.throughput_percent / 100)
        self._clear_drop = -log(limits.throughput_clear_percent / 100)
        self._first: list[float] | None = []  # until there is a history
        self._reference = _Reference(limits)
        self._newest: deque[float] = deque(maxlen=2 * limits.recent_steps)
        self._block: list[float] = []
        self._waiting: deque[list[float]] = deque(maxlen=BLOCKS)
        self._held_steps = self._good_steps = 0
        self._evidence = 0.0
        self.holds: bool | None = None  # None: no history yet
        self.known = False
        self.value = 0.0
        self.usual: UsualRange | None = None

    def add(self, rate: float) -> None:
        """Add the next step's rate; one that is not positive and finite is ignored."""
        self.known = True
        if not (isfinite(rate) and rate > 0):
            return
        value = log(rate)
        if self._first is not None:
            self._first.append(value)
            if len(self._first) >= max(BLOCK_STEPS, self._limits.least_steps):
                self._reference = _Reference.of(_split_into_blocks(self._first), self._limits)
                self._first, self.holds = None, False
            return
        clipped = self._reference.clipped(value)
        self._newest.append(clipped)
        self._judge(self._reference.mean - clipped)
        self._learn(value)

    def _judge(self, slower: float) -> None:
        reference, limits = self._reference, self._limits
        self._evidence = min(max(0.0, self._evidence + slower - reference.half), 2 * reference.least)
        if not self.holds:
            self.holds = self._evidence >= reference.least and self._lasts()
            self._good_steps = self._held_steps = 0
        if not self.holds:
            return
        recent = list(self._newest)[-limits.recent_steps :]
        mean = sum(recent) / len(recent)
        self.value, self.usual = exp(mean), UsualRange(exp(reference.mean), reference.noise)
        self._held_steps += 1
        self._good_steps = self._good_steps + 1 if reference.mean - mean <= self._clear_drop else 0
        if self._good_steps >= limits.recent_clear_steps:
            self._end()

    def _lasts(self) -> bool:
        """Return whether both newest windows, and most of their steps, are slow: a disturbance may span both."""
        newest, steps = list(self._newest), self._limits.recent_steps
        if len(newest) < 2 * steps:
            return False
        mean = self._reference.mean
        slow = min(mean - sum(newest[:steps]) / steps, mean - sum(newest[steps:]) / steps)
        return slow >= self._drop and self._reference.centre - compute_median(newest) >= self._drop

    def _learn(self, value: float) -> None:
        """Move whole blocks into the history, delayed so that a slowdown is found before it changes the reference."""
        self._block.append(value)
        if len(self._block) < BLOCK_STEPS:
            return
        self._waiting.append(self._block)
        self._block = []
        if self.holds:
            if self._held_steps >= self._limits.settle_steps:  # an intended change
                self._reference = _Reference.of(list(self._waiting)[-BLOCKS_FOR_NOISE:], self._limits)
                self._end()
        elif self._evidence <= self._reference.least / 2:
            while len(self._waiting) > BLOCKS_WAITING:
                self._reference.add(self._waiting.popleft())

    def _end(self) -> None:
        self.holds, self._evidence = False, 0.0
        self._newest.clear()
        self._waiting.clear()


class _Reference:
    """The reference: means over blocks of steps without their outliers. Logarithms.

    `half` is the allowance per step, `least` the required sum.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._half = log(1 + limits.slowdown_percent / 100) / 2
        self._values: deque[float] = deque(maxlen=BLOCKS_FOR_NOISE * BLOCK_STEPS)
        self._reach = 0.0
        self.means: deque[float] = deque(maxlen=BLOCKS)
        self.mean = self.centre = self.noise = 0.0
        self.half = self.least = 0.0

    @classmethod
    def of(cls, blocks: list[list[float]], limits: Limits) -> _Reference:
        """Create it from at least one block."""
        made = cls(limits)
        made._bound([value for block in blocks for value in block])
        for block in blocks:
            made.add(block)
        return made

    def clipped(self, value: float) -> float:
        """Return the value, limited to the outlier bound: a save or an evaluation counts as one slow step."""
        return min(max(value, self.centre - self._reach), self.centre + self._reach)

    def add(self, block: list[float]) -> None:
        """Add one block."""
        self._values.extend(block)
        self.means.append(sum(self.clipped(value) for value in block) / len(block))
        self.mean = sum(self.means) / len(self.means)
        spread = self._bound(list(self._values))
        if len(self.means) >= BLOCKS_FOR_NOISE:  # noise that lasts from step to step shows only between blocks
            middle = compute_median(list(self.means))
            lasting = TO_SIGMA * compute_median([abs(mean - middle) for mean in self.means]) * sqrt(BLOCK_STEPS)
            spread = max(spread, lasting)
        self.noise = spread
        self.half = self._half + spread / sqrt(BLOCK_STEPS * len(self.means))  # the possible error of the mean
        needed = _compute_required_evidence(spread, self.half, self._limits.steps_per_false_alarm)
        self.least = max(self._half * self._limits.recent_steps, needed)

    def _bound(self, values: list[float]) -> float:
        """Set the outlier bound; return the standard deviation of the values without outliers."""
        self.centre = compute_median(list(values))
        spread = TO_SIGMA * compute_median([abs(value - self.centre) for value in values])
        self._reach = max(OUTLIER_SPREADS * spread, OUTLIER_LEAST)
        kept = [self.clipped(value) for value in values]
        mean = sum(kept) / len(kept)
        return sqrt(sum((value - mean) ** 2 for value in kept) / len(kept))


def _split_into_blocks(values: list[float]) -> list[list[float]]:
    return [
        values[at : at + BLOCK_STEPS] for at in range(0, len(values), BLOCK_STEPS) if at + BLOCK_STEPS <= len(values)
    ]


def _compute_required_evidence(noise: float, half: float, steps: float) -> float:
    """Return the sum that normal noise reaches once in `steps` steps (Siegmund's approximation)."""
    variance = noise * noise
    return 0.0 if not variance else variance / (2 * half) * log(1 + 2 * half * half / variance * steps)
