"""Judges the nodes' past every hour."""

from __future__ import annotations

import logging

from sqlalchemy.exc import SQLAlchemyError

from remediator.engine import Snapshot
from remediator.store.past import PastStore
from remediator.watch import lemons
from remediator.watch.conclusions import news
from vocabulary.finding import Finding

log = logging.getLogger(__name__)
FIRST_S, EVERY_S, AGAIN_S = 300.0, 3600.0, 60.0  # again: when it failed, or could not be written
MEMORY_S = 182 * 86400.0  # the detector weighs nothing older


class PastWatch:
    """Called at every look; judges when it is time."""

    def __init__(self, past: PastStore, begun_at: float) -> None:
        """Args: `begun_at`: when this term began, UTC seconds; soon after, but not while everybody reports anew, is the first time."""
        self._past = past
        self._due = begun_at + FIRST_S
        self._judged = False  # at the look that is under way

    def __call__(self, snapshot: Snapshot, now: float) -> tuple[Finding, ...]:
        """What is news about the nodes' past; nothing when it is not time, or the database does not answer."""
        self._judged = False
        if now < self._due:
            return ()
        self._due = now + AGAIN_S
        try:
            past = self._past.occurrences([*lemons.KINDS, *lemons.NOT_ITS_OWN], [lemons.XID], now - MEMORY_S)
        except SQLAlchemyError as error:
            log.warning("the nodes' past cannot be read, they are judged by it later: %s", error)
            return ()
        found = lemons.findings(past, [*snapshot.nodes.values()], now)
        known = [finding for finding in snapshot.findings.values() if finding.origin == lemons.ORIGIN]
        self._judged = True
        return news(known, found, now, lambda _: lemons.NO_LONGER, now)

    def written(self, now: float) -> None:
        """All that it said at this look is (UTC s)."""
        if self._judged:
            self._due, self._judged = now + EVERY_S, False
