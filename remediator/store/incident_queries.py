"""Queries on one incident for the post-mortem: read-only, outside the decision thread."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from sqlalchemy import Engine, select

from remediator.model.journal_records import AuditEvent, Incident
from remediator.model.pipeline_inputs import AnyInput, PlacementChanged
from remediator.store import table_schema
from remediator.store.row_mapping import shorten_column_text

EVENTS_MAX = 5000
INPUTS_MAX = 200_000  # scanned for a job's return
EARLIER_MAX = 100
_PLACEMENT = b'"placement"'  # part of every input that says which jobs run where


class IncidentQueries:
    """Queries on one incident. Safe to call from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def events(self, incident: str) -> list[AuditEvent]:
        """Return the audit log of an incident, oldest first."""
        table = table_schema.audit
        query = select(table.c.body).where(table.c.incident == incident).order_by(table.c.seq).limit(EVENTS_MAX)
        with self._engine.connect() as db:
            return [msgspec.json.decode(body, type=AuditEvent) for (body,) in db.execute(query)]

    def earlier(self, incident: Incident, within_s: float) -> list[Incident]:
        """Return incidents of the same node that opened within so many seconds before this one, newest first."""
        table = table_schema.incidents
        since = incident.opened_at - within_s
        query = select(table.c.body).where(
            table.c.node == shorten_column_text(incident.node),
            table.c.id != incident.id,
            table.c.opened_at < incident.opened_at,
            table.c.opened_at >= since,
        )
        with self._engine.connect() as db:
            found = db.execute(query.order_by(table.c.opened_at.desc()).limit(EARLIER_MAX))
            return [msgspec.json.decode(body, type=Incident) for (body,) in found]

    def returns(self, attempts: Mapping[str, int], after: float, until: float) -> dict[str, float]:
        """Return when each job was first seen with a later attempt than the given one; jobs not seen are left out."""
        table = table_schema.inputs
        query = select(table.c.body).where(table.c.at >= after, table.c.at <= until).order_by(table.c.seq)
        seen: dict[str, float] = {}
        with (
            self._engine.connect() as db,
            db.execution_options(yield_per=1000).execute(query.limit(INPUTS_MAX)) as found,
        ):
            for (body,) in found:
                if _PLACEMENT not in body:
                    continue
                item = msgspec.json.decode(body, type=AnyInput)
                if isinstance(item, PlacementChanged):
                    for ref in item.jobs:
                        if ref.job in attempts and ref.attempt > attempts[ref.job]:
                            seen.setdefault(ref.job, item.at)
                if len(seen) == len(attempts):
                    break
        return seen
