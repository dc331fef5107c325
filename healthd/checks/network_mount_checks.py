"""A network file system that does not answer: jobs that use it block, and new ones cannot start."""

from __future__ import annotations

import msgspec

from healthd.collectors.network_mounts import NetworkMountsSample
from healthd.findings.facts import LevelFact, Moment, judge_level
from healthd.findings.hysteresis import Dwell
from vocabulary.identity import Component, ComponentKind

CHECK = "network_mounts"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `network_mounts` of the thresholds."""

    raise_after_s: float
    clear_after_s: float


class NetworkMountsCheck:
    """Remembers how long each has been silent."""

    def __init__(self, limits: Limits) -> None:
        self._dwell = Dwell(limits.raise_after_s, limits.clear_after_s)

    def judge(self, sample: NetworkMountsSample, now: Moment) -> list[LevelFact]:
        """Return a fact per mount that does not answer, or answers with an error."""
        facts: list[LevelFact] = []
        for mount in sample.mounts:
            facts += judge_level(
                self._dwell.judge(mount.mount, bool(mount.trouble), now.monotonic),
                now,
                (CHECK, "silent"),
                Component(ComponentKind.HOST, name=f"mount {mount.mount}"),
                f"{mount.mount} ({mount.type} of {mount.device}): {mount.trouble}",
                evidence={"trouble": mount.trouble},
            )
        return facts
