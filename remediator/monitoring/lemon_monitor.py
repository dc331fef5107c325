"""Judges the nodes' history every hour."""

from __future__ import annotations

import logging

from sqlalchemy.exc import SQLAlchemyError

from remediator.engine.decision_engine import StateSnapshot
from remediator.monitoring import lemon_findings
from remediator.monitoring.detector_findings import select_finding_changes
from remediator.store.occurrence_queries import OccurrenceQueries
from vocabulary.finding import Finding

log = logging.getLogger(__name__)
FIRST_S, EVERY_S, AGAIN_S = 300.0, 3600.0, 60.0  # AGAIN_S: after a failed run or write
MEMORY_S = 182 * 86400.0  # the detector ignores anything older


class LemonMonitor:
    """Called in every pass; judges when due."""

    def __init__(self, past: OccurrenceQueries, begun_at: float) -> None:
        """Args: `begun_at`: start of this term, UTC seconds; the first run follows after `FIRST_S`."""
        self._past = past
        self._due = begun_at + FIRST_S
        self._judged = False  # in the current pass

    def __call__(self, snapshot: StateSnapshot, now: float) -> tuple[Finding, ...]:
        """Return what is new about the nodes' history; empty when not due, or when the database does not answer."""
        self._judged = False
        if now < self._due:
            return ()
        self._due = now + AGAIN_S
        try:
            past = self._past.occurrences(
                [*lemon_findings.KINDS, *lemon_findings.NOT_ITS_OWN], [lemon_findings.XID], now - MEMORY_S
            )
        except SQLAlchemyError as error:
            log.warning("the nodes' history cannot be read, lemon detection is retried later: %s", error)
            return ()
        found = lemon_findings.build_lemon_findings(past, [*snapshot.nodes.values()], now)
        known = [finding for finding in snapshot.findings.values() if finding.origin == lemon_findings.ORIGIN]
        self._judged = True
        return select_finding_changes(known, found, now, lambda _: lemon_findings.NO_LONGER, now)

    def written(self, now: float) -> None:
        """Note that everything from this pass is durable (UTC s)."""
        if self._judged:
            self._due, self._judged = now + EVERY_S, False
