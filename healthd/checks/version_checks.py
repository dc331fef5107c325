"""Version mismatches within one node: whether its cores run the same microcode.

Versions are exported so that the controller can compare nodes.
"""

from __future__ import annotations

import msgspec

from healthd.collectors.versions import VersionsSample
from healthd.findings.facts import LevelFact, Moment, judge_level
from vocabulary.identity import Component, ComponentKind

CHECK = "versions"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `versions` of the thresholds."""

    microcodes_max: float


class VersionsCheck:
    """Stateless."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def judge(self, sample: VersionsSample, now: Moment) -> list[LevelFact]:
        """Return a fact while the cores differ."""
        known = sample.microcode.split()
        return judge_level(
            len(known) > self._limits.microcodes_max if known else None,
            now,
            (CHECK, "microcode"),
            Component(ComponentKind.HOST, name="cpu"),
            "the cores run different microcode: an update reached only some of them",
            evidence={"microcode": sample.microcode},
        )
