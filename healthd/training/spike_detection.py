"""Spikes of the loss and of the gradient norm, told from what training does by design.

Two things look like spikes and are none. Batches from another domain come in runs whose loss is higher, run after run. And
mixed precision raises its loss scale until gradients overflow, then halves it, several times in a row where it has to.
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

HEIGHT_BANDS = (
    3  # an excursion so many times as high as the band, or as high as the loss itself, is no matter of the data
)


class LossSpikes:
    """Excursions of one rank's loss above what is usual, each against those that the job came back from.

    An excursion begins when the loss leaves the band of its noise, and ends when it has been back for a while. It is raised
    when it is higher than earlier ones by a margin, or lasts much longer. What ended is remembered, and slowly forgotten.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._past: deque[float] = deque(maxlen=limits.window_steps)
        self._stale = 0
        self._high: deque[float] = deque(maxlen=limits.loss_steps)  # the newest values in a row that are high
        self._aside: list[float] = []
        self._steps = self._low_steps = 0  # of the excursion, and at its end in a row
        self._height = 0.0  # of the excursion
        self._known_height = self._known_steps = 0.0
        self._fade = 0.5 ** (1 / limits.excursion_half_life_steps)
        self.holds: bool | None = None  # None: there is no past yet to compare with
        self.known = False
        self.value = 0.0
        self.usual: UsualRange | None = None

    @property
    def calm(self) -> bool:
        """Whether the loss is where it usually is; without a past it is."""
        return not self._steps

    def add(self, value: float) -> None:
        """The loss of the next step, finite."""
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
        """One step of an excursion that is not high."""
        low = self.usual is not None and above <= self._limits.loss_spreads / 2 * self.usual.spread
        self._low_steps = self._low_steps + 1 if low else 0
        if self._low_steps >= self._limits.spike_clear_steps:
            self._end()

    def _end(self) -> None:
        """Remember the excursion, as far as data may have it: after a spike that was far higher, others are still spikes."""
        if self.usual is not None:
            most = max(abs(self.usual.centre), HEIGHT_BANDS * self._limits.loss_spreads * self.usual.spread)
            self._known_height = max(self._known_height, min(self._height, most))
        self._known_steps = max(self._known_steps, float(self._steps))
        self._steps = self._low_steps = 0
        self._height, self.holds = 0.0, False
        self._high.clear()

    def _keep_aside(self, value: float) -> None:
        """A level that lasts is somebody's intention."""
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
    """The median, and the spread around the trend; at least 4 finite values.

    Told from step to step the trend does not count, but neither does noise that lasts from one step to the next; told from the
    distance to a straight line it does. The greater one is the spread.
    """
    from_step_to_step = TO_SIGMA * compute_median([abs(b - a) for a, b in pairwise(values)]) / 2**0.5
    half = len(values) // 2
    slope = (
        compute_median(values[half:]) - compute_median(values[:half])
    ) / half  # each slice is a copy: sorting it is harmless
    middle = (len(values) - 1) / 2
    level = [value - slope * (number - middle) for number, value in enumerate(values)]
    centre = compute_median(list(level))
    from_line = TO_SIGMA * compute_median([abs(value - centre) for value in level])
    return compute_median(list(values)), max(from_step_to_step, from_line)


class GradientSpikes:
    """One rank's gradient norm: far above its median, or no finite number for longer than a loss scale needs to come down."""

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
        self._overflows = self._finite_steps = 0  # in a row
        self._has_been_finite = self._overflows_hold = False
        self.value = 0.0

    @property
    def known(self) -> bool:
        """Whether the job reports this number at all."""
        return self._has_been_finite or self._overflows > 0

    @property
    def usual(self) -> UsualRange | None:
        """What is usual among finite norms."""
        return self._finite.usual

    @property
    def holds(self) -> bool | None:
        """Whether it is bad; None while there is no past to compare with."""
        return True if self._overflows_hold else self._finite.holds

    @property
    def calm(self) -> bool:
        """Whether the last value was as good as any."""
        return not self._overflows and not self._overflows_hold and self._finite.calm

    def add(self, value: float, *, warm: bool) -> None:
        """The norm of the next step. Args: `warm`: the process has its first steps behind it, so finite values count."""
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
            return False  # a frozen model, or none that says so: nothing to compare with
        times, bad = value / usual.centre, self._limits.gradient_times_usual
        return True if times > bad else False if times <= bad / 2 else None
