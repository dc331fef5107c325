"""Beacon pages that no order can reach: unreadable ones, and those that claim another user's job."""

from __future__ import annotations

from dataclasses import dataclass, field

from healthd.findings.facts import Clear, Fact, Raise
from healthd.samples.rank_steps import Beacons
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind

CHECK = "beacon"
CORRUPT, OWNERS = "corrupt", "owners"
PAGES_MAX = 64  # reported at once; a directory full of invalid files is one problem, not thousands

_OVER = {CORRUPT: "readable again, or removed", OWNERS: "all living pages of the job belong to one user"}


@dataclass
class BeaconCheck:
    """Remembers broken pages and disputed jobs, so that their findings clear."""

    broken: set[str] = field(default_factory=set)
    disputed: set[str] = field(default_factory=set)

    def judge(self, sample: Beacons) -> list[Fact]:
        """Return one finding per broken page, and one per job that several users claim."""
        broken, disputed = _limit_problems(sample.broken), _limit_problems(sample.disputed)
        facts = [
            *_compare_problems(CORRUPT, self.broken, broken, sample.at),
            *_compare_problems(OWNERS, self.disputed, disputed, sample.at),
        ]
        self.broken, self.disputed = set(broken), set(disputed)
        return facts


def _limit_problems(problems: dict[str, str]) -> dict[str, str]:
    return dict(sorted(problems.items())[:PAGES_MAX])


def _compare_problems(code: str, before: set[str], now: dict[str, str], at: float) -> list[Fact]:
    over = [
        Clear(check=CHECK, code=code, component=_make_rank_component(name), at=at, by=_OVER[code])
        for name in sorted(before - now.keys())
    ]
    severity = Severity.WARNING
    there = [
        Raise(
            check=CHECK,
            code=code,
            component=_make_rank_component(name),
            severity=severity,
            summary=problem[:300],
            at=at,
        )
        for name, problem in now.items()
    ]
    return [*over, *there]


def _make_rank_component(name: str) -> Component:
    return Component(ComponentKind.RANK, name=name)
