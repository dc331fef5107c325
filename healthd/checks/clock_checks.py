"""An unsynchronised clock: times of findings, logs and certificates drift from the other nodes'."""

from __future__ import annotations

import msgspec

from healthd.collectors.clock import ClockSample
from healthd.findings.facts import LevelFact, Moment, judge_level
from healthd.findings.hysteresis import Dwell
from vocabulary.identity import Component, ComponentKind

CHECK = "clock"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `clock` of the thresholds."""

    error_max_s: float
    raise_after_s: float
    clear_after_s: float


class ClockCheck:
    """Remembers how long the clock has been unsynchronised."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._dwell = Dwell(limits.raise_after_s, limits.clear_after_s)

    def judge(self, sample: ClockSample, now: Moment) -> list[LevelFact]:
        """Return a fact if the clock is not synchronised, or not closely enough."""
        error_s = sample.error_max_us * 1e-6
        return [
            *self._level(
                "unsynchronized", "no time service synchronises the clock", not sample.synchronized, error_s, now
            ),
            *self._level(
                "inaccurate",
                f"the clock may be off by more than {self._limits.error_max_s:g} s",
                sample.synchronized and error_s > self._limits.error_max_s,
                error_s,
                now,
            ),
        ]

    def _level(self, code: str, summary: str, bad: bool, error_s: float, now: Moment) -> list[LevelFact]:  # noqa: FBT001 - the reading itself
        holds, component = self._dwell.judge(code, bad, now.monotonic), Component(ComponentKind.HOST, name="clock")
        return judge_level(holds, now, (CHECK, code), component, summary, evidence={"error_max_s": error_s})
