"""Trainer pages that cannot be read: the rank behind one can be given no order."""

from __future__ import annotations

from dataclasses import dataclass, field

from healthd.facts import Clear, Fact, Raise
from healthd.samples.beacons import Beacons
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind

CHECK = "beacon"
PAGES_MAX = 64  # reported at once; a directory full of rubbish is one problem, not thousands


@dataclass
class BeaconCheck:
    """Remembers which pages were broken, so that one that is gone or readable again clears its finding."""

    broken: set[str] = field(default_factory=set)

    def judge(self, sample: Beacons) -> list[Fact]:
        """One finding for each broken page."""
        now_broken = dict(sorted(sample.broken.items())[:PAGES_MAX])
        healed = sorted(self.broken - now_broken.keys())
        self.broken = set(now_broken)
        return [
            *(_heal(name, sample.at) for name in healed),
            *(_break(name, problem, sample.at) for name, problem in now_broken.items()),
        ]


def _heal(name: str, at: float) -> Clear:
    return Clear(check=CHECK, code="corrupt", component=_page(name), at=at, by="readable again, or gone")


def _break(name: str, problem: str, at: float) -> Raise:
    severity = Severity.WARNING
    return Raise(check=CHECK, code="corrupt", component=_page(name), severity=severity, summary=problem[:300], at=at)


def _page(name: str) -> Component:
    return Component(ComponentKind.RANK, name=name)
