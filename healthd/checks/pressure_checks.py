"""A host whose tasks mostly wait for memory, CPU or I/O: it soon fails its job or slows down every rank."""

from __future__ import annotations

import msgspec

from healthd.collectors.pressure import PressureSample, PressureStall
from healthd.findings.facts import LevelFact, Moment, judge_level
from healthd.findings.hysteresis import Dwell
from vocabulary.identity import Component, ComponentKind

CHECK = "pressure"
_HOST = Component(ComponentKind.HOST)


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `pressure` of the thresholds."""

    memory_full_percent: float
    io_full_percent: float
    raise_after_s: float
    clear_after_s: float


class PressureCheck:
    """Remembers how long each resource has been short."""

    def __init__(self, limits: Limits) -> None:
        self._percent = {"memory": limits.memory_full_percent, "io": limits.io_full_percent}
        self._dwell = Dwell(limits.raise_after_s, limits.clear_after_s)

    def judge(self, sample: PressureSample, now: Moment) -> list[LevelFact]:
        """Return a fact per resource that all tasks wait for."""
        return [fact for stall in sample.stalls if stall.resource in self._percent for fact in self._judge(stall, now)]

    def _judge(self, stall: PressureStall, now: Moment) -> list[LevelFact]:
        limit = self._percent[stall.resource]
        bad = None if stall.full_percent is None else stall.full_percent >= limit
        holds = self._dwell.judge(stall.resource, bad, now.monotonic)
        summary = f"all tasks wait for {stall.resource} at least {limit:g} % of the time"
        evidence = {"full_percent": stall.full_percent}
        return judge_level(holds, now, (CHECK, stall.resource), _HOST, summary, evidence=evidence)
