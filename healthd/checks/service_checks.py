"""A required service that does not run."""

from __future__ import annotations

import msgspec

from healthd.collectors.services import Service, ServicesSample
from healthd.findings.facts import LevelFact, Moment, judge_level
from healthd.findings.hysteresis import Dwell
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind

CHECK = "services"
# Without it, no NVLink of an NVSwitch system is set up: every job that uses more than one GPU fails at its start.
VITAL = frozenset({"nvidia-fabricmanager"})


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `services` of the thresholds."""

    raise_after_s: float
    clear_after_s: float


class ServicesCheck:
    """Remembers how long each service has been down."""

    def __init__(self, limits: Limits) -> None:
        self._dwell = Dwell(limits.raise_after_s, limits.clear_after_s)

    def judge(self, sample: ServicesSample, now: Moment) -> list[LevelFact]:
        """Return a fact per required service that is not active."""
        return [fact for service in sample.services if service.wanted for fact in self._judge(service, now)]

    def _judge(self, service: Service, now: Moment) -> list[LevelFact]:
        return judge_level(
            self._dwell.judge(service.name, not service.active, now.monotonic),
            now,
            (CHECK, "down"),
            Component(ComponentKind.HOST, name=f"service {service.name}"),
            f"{service.name} should run, but is {service.state}",
            severity=Severity.ERROR if service.name in VITAL else Severity.WARNING,
            evidence={"state": service.state},
        )
