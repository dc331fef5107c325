"""NVSwitch errors in the fabric manager's log: the only source on systems whose switches write no SXids."""

from __future__ import annotations

import msgspec

from healthd.collectors.fabric_manager import FabricManagerSample, SwitchError
from healthd.findings.facts import LevelFact, Moment, Raise
from vocabulary.finding import Evidence, Severity
from vocabulary.identity import Component, ComponentKind, canonical_pci

CHECK = "fabric_manager"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `fabric_manager` of the thresholds."""

    fatal_is_error: float


class FabricManagerCheck:
    """Remembers the errors of the last sample; those in the first one are old."""

    def __init__(self, limits: Limits) -> None:
        self._fatal = Severity.ERROR if limits.fatal_is_error else Severity.WARNING
        self._seen: frozenset[SwitchError] | None = None

    def judge(self, sample: FabricManagerSample, now: Moment) -> list[LevelFact]:
        """Return an event per new error."""
        before, self._seen = self._seen, frozenset(sample.errors)
        return [] if before is None else [self._fact(e, now) for e in sample.errors if e not in before]

    def _fact(self, error: SwitchError, now: Moment) -> Raise:
        evidence: Evidence = {"line": error.text}
        if error.port is not None:
            evidence["port"] = error.port
        return Raise(
            check=CHECK,
            code=error.code,
            component=Component(ComponentKind.NVSWITCH, pci=_normalize_pci(error.pci)),
            severity=self._fatal if error.fatal else Severity.WARNING,
            summary=f"NVSwitch {error.pci}: {'fatal' if error.fatal else 'non-fatal'} error {error.code}",
            at=now.wall,
            event=True,
            origin=f"fabric_manager:{error.stamp}",
            evidence=evidence,
        )


def _normalize_pci(text: str) -> str:
    try:
        return canonical_pci(text)
    except ValueError:
        return ""
