"""Processes stuck in the kernel, and zombies that pile up: signs of a dead device or file system."""

from __future__ import annotations

import msgspec

from healthd.collectors.processes import ProcessesSample
from healthd.findings.facts import LevelFact, Moment, judge_level
from healthd.findings.hysteresis import Dwell
from vocabulary.finding import Evidence
from vocabulary.identity import Component, ComponentKind

CHECK = "processes"
NAMED_MAX = 5
_HOST = Component(ComponentKind.HOST)


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `processes` of the thresholds."""

    stuck_after_s: float
    zombies: float
    raise_after_s: float
    clear_after_s: float


class ProcessesCheck:
    """Remembers since which sample each process has been waiting."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._zombies = Dwell(limits.raise_after_s, limits.clear_after_s)
        self._waiting: dict[tuple[int, int], float] = {}

    def judge(self, sample: ProcessesSample, now: Moment) -> list[LevelFact]:
        """Return one fact for all stuck processes, one for the zombies."""
        return [*self._stuck(sample, now), *self._dead(sample, now)]

    def _stuck(self, sample: ProcessesSample, now: Moment) -> list[LevelFact]:
        waiting = {(p.pid, p.started): p for p in sample.stuck if p.state == "D"}
        self._waiting = {key: self._waiting.get(key, now.monotonic) for key in waiting}
        limit = self._limits.stuck_after_s
        stuck = [waiting[key] for key, since in self._waiting.items() if now.monotonic - since >= limit]
        summary = f"processes have been stuck in the kernel for over {limit:.0f} s, and cannot be ended"
        names = ", ".join(f"{p.name} ({p.pid})" for p in stuck[:NAMED_MAX])
        evidence: Evidence = {"count": len(stuck), "processes": names}
        return judge_level(bool(stuck), now, (CHECK, "stuck"), _HOST, summary, evidence=evidence)

    def _dead(self, sample: ProcessesSample, now: Moment) -> list[LevelFact]:
        holds = self._zombies.judge("zombies", sample.zombies >= self._limits.zombies, now.monotonic)
        summary = f"at least {self._limits.zombies:.0f} zombie processes"
        return judge_level(holds, now, (CHECK, "zombies"), _HOST, summary, evidence={"count": sample.zombies})
