"""Judges the nodes' past every hour."""

from __future__ import annotations

import logging

from sqlalchemy.exc import SQLAlchemyError

from remediator.engine.decision_engine import StateSnapshot
from remediator.monitoring import lemon_findings
from remediator.monitoring.detector_findings import select_finding_changes
from remediator.store.occurrence_queries import OccurrenceQueries
from vocabulary.finding import Finding

log = logging.getLogger(__name__)
FIRST_S, EVERY_S, AGAIN_S = 300.0, 3600.0, 60.0  # again: when it failed, or could not be written
MEMORY_S = 182 * 86400.0  # the detector weighs nothing older


class LemonMonitor:
    """Called at every look; judges when it is time."""

    def __init__(self, past: OccurrenceQueries, begun_at: float) -> None:
        """Args: `begun_at`: when this term began, UTC seconds; soon after, but not while everybody reports anew, is the first time."""
        self._past = past
        self._due = begun_at + FIRST_S
        self._judged = False  # at the look that is under way

    def __call__(self, snapshot: StateSnapshot, now: float) -> tuple[Finding, ...]:
        """What is news about the nodes' past; nothing when it is not time, or the database does not answer."""
        self._judged = False
        if now < self._due:
            return ()
        self._due = now + AGAIN_S
        try:
            past = self._past.occurrences(
                [*lemon_findings.KINDS, *lemon_findings.NOT_ITS_OWN], [lemon_findings.XID], now - MEMORY_S
            )
        except SQLAlchemyError as error:
            log.warning("the nodes' past cannot be read, they are judged by it later: %s", error)
            return ()
        found = lemon_findings.build_lemon_findings(past, [*snapshot.nodes.values()], now)
        known = [finding for finding in snapshot.findings.values() if finding.origin == lemon_findings.ORIGIN]
        self._judged = True
        return select_finding_changes(known, found, now, lambda _: lemon_findings.NO_LONGER, now)

    def written(self, now: float) -> None:
        """All that it said at this look is (UTC s)."""
        if self._judged:
            self._due, self._judged = now + EVERY_S, False
