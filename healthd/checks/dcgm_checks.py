"""DCGM's own incidents, where it watches, in its own words, for what healthd's checks do not cover."""

from __future__ import annotations

import msgspec

from healthd.collectors.dcgm import DcgmIncident, DcgmSample
from healthd.findings.facts import LevelFact, Moment, Raise
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind

CHECK = "dcgm"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `dcgm` of the thresholds."""

    failure_is_error: float


class DcgmCheck:
    """Stateless: DCGM keeps an incident until it ends."""

    def __init__(self, limits: Limits) -> None:
        self._failure = Severity.ERROR if limits.failure_is_error else Severity.WARNING

    def judge(self, sample: DcgmSample, now: Moment) -> list[LevelFact]:
        """Return a fact per incident. Without DCGM watches the state is unknown."""
        return [self._fact(incident, now) for incident in sample.incidents if incident.health in ("Warning", "Failure")]

    def _fact(self, incident: DcgmIncident, now: Moment) -> Raise:
        failed = incident.health == "Failure"
        return Raise(
            check=CHECK,
            code=incident.system.removesuffix(" system").lower().replace(" ", "_") or "other",
            component=Component(ComponentKind.HOST, name=f"dcgm {incident.entity}"),
            severity=self._failure if failed else Severity.WARNING,
            summary=f"DCGM, {incident.entity}, {incident.system}: {incident.health}: {incident.text}"[:300],
            at=now.wall,
        )
