"""The numbers of a rank's steps, each against its own past: loss, gradient norm, throughput, share of communication."""

from __future__ import annotations

from math import isfinite

from healthd.samples.rank_steps import StepFacts
from healthd.training.limits import Limits
from healthd.training.series import Memory, Series, Streak, Usual

WORK_SHARE_MIN = 0.2  # a step that mostly saved says nothing about the pace


class RankNumbers:
    """What one rank's process reported so far. `series` are keyed by the code of the finding that each can raise.

    `good_steps` are, by code, the last steps before it began to hold, or to look like it.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seen = -1
        self._counts_tokens = False
        self.not_finite = Streak(1, limits.loss_clear_steps)
        self.last_loss: float | None = None
        self.good_steps: dict[str, int] = {}
        spike = limits.spike_clear_steps
        recent, clear = limits.recent_steps, limits.recent_clear_steps
        self._pace = _memory(limits, recent, recent, clear)
        self.series = {
            "loss_spike": Series(
                _memory(limits, 1, limits.loss_steps, spike)._replace(trending=True), _LossBand(limits)
            ),
            "gradient_spike": Series(_memory(limits, 1, limits.gradient_steps, spike), _GradientBand(limits)),
            "throughput_low": Series(self._pace, _ThroughputBand(limits)),
            "communication_share": Series(self._pace, _CommunicationBand(limits)),
        }

    def add(self, step: StepFacts) -> None:
        """The next finished step; one that was seen is not counted again."""
        if step.ordinal <= self._seen:
            return
        self._seen = step.ordinal
        if step.loss is not None:
            self.last_loss = step.loss
            self.not_finite.add(not isfinite(step.loss))
            if self.not_finite.calm:
                self.good_steps["loss_not_finite"] = step.step
        if step.ordinal < self._limits.warm_up_steps:
            return
        if step.loss is not None and isfinite(step.loss):  # otherwise it has a finding of its own
            self._add_spiky("loss_spike", step.loss, step.step)
        if step.gradient_norm is not None:
            self._add_spiky("gradient_spike", step.gradient_norm, step.step)
        work_s = step.seconds - step.checkpoint_s
        if work_s <= 0 or work_s < WORK_SHARE_MIN * step.seconds:
            return
        self._add_pace(step.tokens, work_s)
        if step.communication_s is not None:
            self.series["communication_share"].add(min(1.0, step.communication_s / work_s))

    def _add_spiky(self, code: str, value: float, step: int) -> None:
        self.series[code].add(value)
        if self.series[code].calm:
            self.good_steps[code] = step

    def _add_pace(self, tokens: float | None, work_s: float) -> None:
        """Tokens a second if the job counts tokens, else steps a second; the two are never compared."""
        if tokens is not None and not self._counts_tokens:
            self._counts_tokens = True
            self.series["throughput_low"] = Series(self._pace, _ThroughputBand(self._limits))
        if tokens is not None or not self._counts_tokens:
            self.series["throughput_low"].add((1.0 if tokens is None else tokens) / work_s)


def _memory(limits: Limits, recent: int, raise_after: int, clear_after: int) -> Memory:
    return Memory(recent, limits.window_steps, limits.least_steps, raise_after, clear_after, limits.settle_steps)


class _LossBand:
    def __init__(self, limits: Limits) -> None:
        self._spreads, self._floor = limits.loss_spreads, limits.loss_spread_floor_percent / 100

    def __call__(self, value: float, usual: Usual) -> bool | None:
        above = (value - usual.centre) / (max(usual.spread, self._floor * abs(usual.centre)) or 1e-12)
        return True if above > self._spreads else False if above <= self._spreads / 2 else None


class _GradientBand:
    def __init__(self, limits: Limits) -> None:
        self._times = limits.gradient_times_usual

    def __call__(self, value: float, usual: Usual) -> bool | None:
        if usual.centre <= 0:
            return False  # a frozen model, or none that says so: nothing to compare with
        times = value / usual.centre
        return True if times > self._times else False if times <= self._times / 2 else None


class _ThroughputBand:
    def __init__(self, limits: Limits) -> None:
        self._bad, self._good = limits.throughput_percent / 100, limits.throughput_clear_percent / 100

    def __call__(self, value: float, usual: Usual) -> bool | None:
        return True if value < self._bad * usual.centre else False if value >= self._good * usual.centre else None


class _CommunicationBand:
    def __init__(self, limits: Limits) -> None:
        self._bad, self._good = limits.communication_points / 100, limits.communication_clear_points / 100

    def __call__(self, value: float, usual: Usual) -> bool | None:
        above = value - usual.centre
        return True if above > self._bad else False if above <= self._good else None
