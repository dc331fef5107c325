"""Spikes of the loss and of the gradient norm, as opposed to what training does by design.

Two things resemble spikes but are none. Batches from another domain come in runs with a higher loss. And mixed
precision raises its loss scale until gradients overflow, then halves it, several times in a row if needed.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from math import isfinite

from healthd.training.robust_series import (
    REFRESH_STEPS,
    TO_SIGMA,
    RobustSeries,
    SeriesMemory,
    UsualRange,
    compute_median,
)
from healthd.training.watchdog_limits import Limits

# An excursion this many times the band, or the loss itself, is not caused by the data.
HEIGHT_BANDS = 3


class LossSpikes:
    """Excursions of one rank's loss above the usual, each compared with those that the job recovered from.

    An excursion begins when the loss leaves its noise band and ends when it has been back for a while. It is raised
    when it is higher than earlier ones by a margin, or lasts much longer. Ended excursions are remembered and decay
    slowly.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._past: deque[float] = deque(maxlen=limits.window_steps)
        self._stale = 0
        self._high: deque[float] = deque(maxlen=limits.loss_steps)  # the newest consecutive high values
        self._aside: list[float] = []
        self._steps = self._low_steps = 0  # of the excursion, and consecutive low ones at its end
        self._height = 0.0  # of the excursion
        self._known_height = self._known_steps = 0.0
        self._fade = 0.5 ** (1 / limits.excursion_half_life_steps)
        self.holds: bool | None = None  # None: no history yet
        self.known = False
        self.value = 0.0
        self.usual: UsualRange | None = None

    @property
    def calm(self) -> bool:
        """Return whether the loss is at its usual level; true without a history."""
        return not self._steps

    def add(self, value: float) -> None:
        """Add the next step's loss, finite."""
        self.known, self.value = True, value
        self._refresh()
        if self.usual is None:
            self._past.append(value)
            return
        self.holds = bool(self.holds)
        self._known_height *= self._fade
        self._known_steps *= self._fade
        above = value - self.usual.centre
        high = above > self._limits.loss_spreads * self.usual.spread
        if high:
            self._rise(above)
        else:
            self._high.clear()
            if self._steps:
                self._fall(above)
        if high or self.holds:
            self._keep_aside(value)
        else:
            self._aside.clear()
            self._past.append(value)
            self._stale += 1

    def _rise(self, above: float) -> None:
        limits = self._limits
        self._steps, self._low_steps = self._steps + 1, 0
        self._high.append(above)
        if len(self._high) < limits.loss_steps:
            return
        height = min(self._high)
        self._height = max(self._height, height)
        longest = limits.loss_steps + limits.excursion_times_longest * self._known_steps
        if height > limits.excursion_times * self._known_height or self._steps > longest:
            self.holds = True

    def _fall(self, above: float) -> None:
        """Process a step of an excursion that is not high."""
        low = self.usual is not None and above <= self._limits.loss_spreads / 2 * self.usual.spread
        self._low_steps = self._low_steps + 1 if low else 0
        if self._low_steps >= self._limits.spike_clear_steps:
            self._end()

    def _end(self) -> None:
        """Remember the excursion, capped at what data may cause, so that later spikes remain detectable."""
        if self.usual is not None:
            most = max(abs(self.usual.centre), HEIGHT_BANDS * self._limits.loss_spreads * self.usual.spread)
            self._known_height = max(self._known_height, min(self._height, most))
        self._known_steps = max(self._known_steps, float(self._steps))
        self._steps = self._low_steps = 0
        self._height, self.holds = 0.0, False
        self._high.clear()

    def _keep_aside(self, value: float) -> None:
        """Collect high values: a level that lasts is intended."""
        self._aside.append(value)
        if len(self._aside) >= self._limits.settle_steps:
            self._past = deque(self._aside, maxlen=self._limits.window_steps)
            self._aside.clear()
            self._stale = REFRESH_STEPS
            self._end()

    def _refresh(self) -> None:
        limits = self._limits
        if len(self._past) < limits.least_steps or (self.usual is not None and self._stale < REFRESH_STEPS):
            return
        self._stale = 0
        centre, spread = compute_median_and_noise(list(self._past))
        self.usual = UsualRange(centre, max(spread, limits.loss_spread_floor_percent / 100 * abs(centre), 1e-12))


def compute_median_and_noise(values: list[float]) -> tuple[float, float]:
    """Return the median and the spread around the trend of at least 4 finite values.

    Differences between steps exclude the trend, but also noise that lasts from one step to the next; distances to a
    straight line include it. The spread is the greater of the two.
    """
    from_step_to_step = TO_SIGMA * compute_median([abs(b - a) for a, b in pairwise(values)]) / 2**0.5
    half = len(values) // 2
    slope = (
        compute_median(values[half:]) - compute_median(values[:half])
    ) / half  # each slice is a copy, so sorting is harmless
    middle = (len(values) - 1) / 2
    level = [value - slope * (number - middle) for number, value in enumerate(values)]
    centre = compute_median(list(level))
    from_line = TO_SIGMA * compute_median([abs(value - centre) for value in level])
    return compute_median(list(values)), max(from_step_to_step, from_line)


class GradientSpikes:
    """One rank's gradient norm: far above its median, or not finite for longer than a loss scale needs to adapt."""

    def __init__(self, limits: Limits) -> None:
        memory = SeriesMemory(
            recent=1,
            window=limits.window_steps,
            least=limits.least_steps,
            raise_after=limits.gradient_steps,
            clear_after=limits.spike_clear_steps,
            settle=limits.settle_steps,
        )
        self._limits = limits
        self._finite = RobustSeries(memory, self._judge)
        self._overflows = self._finite_steps = 0  # consecutive
        self._has_been_finite = self._overflows_hold = False
        self.value = 0.0

    @property
    def known(self) -> bool:
        """Return whether the job reports this value at all."""
        return self._has_been_finite or self._overflows > 0

    @property
    def usual(self) -> UsualRange | None:
        """The usual value among finite norms."""
        return self._finite.usual

    @property
    def holds(self) -> bool | None:
        """Return whether it is bad; None while there is no history."""
        return True if self._overflows_hold else self._finite.holds

    @property
    def calm(self) -> bool:
        """Return whether the last value was good."""
        return not self._overflows and not self._overflows_hold and self._finite.calm

    def add(self, value: float, *, warm: bool) -> None:
        """Add the next step's norm; `warm`: the process has finished its first steps, so finite values count."""
        limits = self._limits
        self.value = value
        if isfinite(value):
            self._has_been_finite = True
            self._overflows, self._finite_steps = 0, self._finite_steps + 1
            if self._finite_steps >= limits.spike_clear_steps:
                self._overflows_hold = False
            if warm:
                self._finite.add(value)
            return
        self._overflows, self._finite_steps = self._overflows + 1, 0
        most = limits.overflow_steps if self._has_been_finite else limits.overflow_start_steps
        if self._overflows > most:
            self._overflows_hold = True

    def _judge(self, value: float, usual: UsualRange) -> bool | None:
        if usual.centre <= 0:
            return False  # a frozen model, or one that reports zero: nothing to compare with
        times, bad = value / usual.centre, self._limits.gradient_times_usual
        return True if times > bad else False if times <= bad / 2 else None
