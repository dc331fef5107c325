"""Compares each rank's step values with its own history: loss, gradient norm, throughput, communication share."""

from __future__ import annotations

from math import isfinite
from typing import Protocol

from healthd.samples.rank_steps import StepFacts
from healthd.training.robust_series import RobustSeries, SeriesMemory, Streak, UsualRange
from healthd.training.slowdown_detection import Slowdown
from healthd.training.spike_detection import GradientSpikes, LossSpikes
from healthd.training.watchdog_limits import Limits

WORK_SHARE_MIN = 0.2  # a step spent mostly saving says nothing about the pace


class JudgedNumber(Protocol):
    """One value per step, compared with its own history."""

    @property
    def holds(self) -> bool | None:
        """Return whether it is bad; None while there is no history."""

    @property
    def known(self) -> bool:
        """Return whether the job reports this value at all."""

    @property
    def value(self) -> float:
        """The last value judged."""

    @property
    def usual(self) -> UsualRange | None:
        """The value it was compared with."""


class RankNumbers:
    """The series of one rank's process.

    `good_steps` are, by code, the last steps before the condition began or seemed to begin.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seen = -1
        self._counts_tokens = False
        self.not_finite = Streak(1, limits.loss_clear_steps)
        self.last_loss: float | None = None
        self.good_steps: dict[str, int] = {}
        self._loss, self._gradient = LossSpikes(limits), GradientSpikes(limits)
        self._pace = Slowdown(limits)
        self._communication = RobustSeries(_make_memory(limits), _CommunicationBand(limits))

        self.series: dict[str, JudgedNumber] = {  # by the code of the finding that each can raise
            "loss_spike": self._loss,
            "gradient_spike": self._gradient,
            "throughput_low": self._pace,
            "communication_share": self._communication,
        }

    def add(self, step: StepFacts) -> None:
        """Add the next finished step; a step that was already added is ignored."""
        if step.ordinal <= self._seen:
            return
        self._seen = step.ordinal
        if step.loss is not None:
            self.last_loss = step.loss
            self.not_finite.add(not isfinite(step.loss))
            if self.not_finite.calm:
                self.good_steps["loss_not_finite"] = step.step
        warm = step.ordinal >= self._limits.warm_up_steps
        if step.gradient_norm is not None:
            self._gradient.add(step.gradient_norm, warm=warm)
            if warm and self._gradient.calm:
                self.good_steps["gradient_spike"] = step.step
        if warm:
            self._add_warm(step)

    def _add_warm(self, step: StepFacts) -> None:
        if step.loss is not None and isfinite(step.loss):  # a loss that is not finite has a finding of its own
            self._loss.add(step.loss)
            if self._loss.calm:
                self.good_steps["loss_spike"] = step.step
        work_s = step.seconds - step.checkpoint_s
        if work_s <= 0 or work_s < WORK_SHARE_MIN * step.seconds:
            return
        self._add_pace(step.tokens, work_s)
        if step.communication_s is not None:
            self._communication.add(min(1.0, step.communication_s / work_s))

    def _add_pace(self, tokens: float | None, work_s: float) -> None:
        """Add tokens per second if the job counts tokens, else steps per second; the two are never compared."""
        if tokens is not None and not self._counts_tokens:
            self._counts_tokens = True
            self.series["throughput_low"] = self._pace = Slowdown(self._limits)
        if tokens is not None or not self._counts_tokens:
            self._pace.add((1.0 if tokens is None else tokens) / work_s)


def _make_memory(limits: Limits) -> SeriesMemory:
    return SeriesMemory(
        recent=limits.recent_steps,
        window=limits.window_steps,
        least=limits.least_steps,
        raise_after=limits.recent_steps,
        clear_after=limits.recent_clear_steps,
        settle=limits.settle_steps,
    )


class _CommunicationBand:
    def __init__(self, limits: Limits) -> None:
        self._bad, self._good = limits.communication_points / 100, limits.communication_clear_points / 100

    def __call__(self, value: float, usual: UsualRange) -> bool | None:
        above = value - usual.centre
        return True if above > self._bad else False if above <= self._good else None
