"""Queries on history for pages and commands: read-only, outside the decision thread, by index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from sqlalchemy import Column, Engine, Select, func, select

from remediator.model.finding_settlement import Settlement
from remediator.model.journal_records import Action, AuditEvent, Decision, Incident
from remediator.model.plan_steps import Verb
from remediator.store import table_schema
from remediator.store.row_mapping import shorten_column_text

IDS_AT_ONCE = 1000
TELLING = (Verb.ALERT.value, Verb.TICKET.value)


class HistoryQueries:
    """Queries on the past. Safe to call from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def actions(self, limit: int, *, ended: bool) -> list[Action]:
        """Return the newest actions by planning time, newest first; with `ended`, only those that have ended."""
        table = table_schema.actions
        query = select(table.c.body).order_by(table.c.planned_at.desc(), table.c.id).limit(limit)
        if ended:
            query = query.where(table.c.final.is_(True))
        with self._engine.connect() as db:
            return [msgspec.json.decode(body, type=Action) for (body,) in db.execute(query)]

    def action(self, name: str) -> Action | None:
        """Return one action, or None."""
        table = table_schema.actions
        with self._engine.connect() as db:
            body = db.execute(select(table.c.body).where(table.c.id == name)).scalar()
        return None if body is None else msgspec.json.decode(body, type=Action)

    def injected(self, findings: Sequence[str]) -> frozenset[str]:
        """Return which of these findings, by id, are test faults."""
        table = table_schema.findings
        query = select(table.c.id).where(table.c.injected.is_(True))
        return frozenset(str(name) for (name,) in self._rows_with(table.c.id, findings, query))

    def words_of(self, incident: str, findings: Sequence[str]) -> dict[str, Settlement]:
        """Return an operator's settlements of an incident's active findings, by finding."""
        table = table_schema.findings
        query = select(table.c.id, table.c.settled_word, table.c.settled_at)
        query = query.where(table.c.settled_by == incident, table.c.settled_word != "")
        rows = self._rows_with(table.c.id, findings, query)
        return {str(name): Settlement(incident, said, at or 0.0) for name, said, at in rows}

    def untold(self, incidents: Sequence[str]) -> frozenset[str]:
        """Return ids of notifications of these incidents that had no receiver."""
        table = table_schema.actions
        query = select(table.c.body).where(table.c.verb.in_(TELLING), table.c.final.is_(True))
        rows = self._rows_with(table.c.incident, incidents, query)
        actions = (msgspec.json.decode(body, type=Action) for (body,) in rows)
        return frozenset(action.id for action in actions if action.untold)

    def events_of(self, node: str, limit: int) -> list[tuple[int, AuditEvent]]:
        """Return the newest audit events about a node with their numbers, newest first."""
        table = table_schema.audit
        query = select(table.c.seq, table.c.body).where(table.c.node == shorten_column_text(node))
        with self._engine.connect() as db:
            found = db.execute(query.order_by(table.c.seq.desc()).limit(limit))
            return [(seq, msgspec.json.decode(body, type=AuditEvent)) for seq, body in found]

    def last_event_before(self, at: float) -> int:
        """Return the number of the last audit event before `at` (UTC s), 0 without one.

        A binary search: they are in order.
        """
        table = table_schema.audit
        with self._engine.connect() as db:
            low = 0  # an event before `at`, or none
            high = int(db.execute(select(func.coalesce(func.max(table.c.seq), 0))).scalar_one()) + 1
            while high - low > 1:
                middle = (low + high) // 2
                query = select(table.c.seq, table.c.at).where(table.c.seq <= middle, table.c.seq > low)
                found = db.execute(query.order_by(table.c.seq.desc()).limit(1)).first()
                if found is None or found.at < at:
                    low = middle
                else:
                    high = int(found.seq)
            return low

    def decisions(self, names: Sequence[str]) -> dict[str, Decision]:
        """Return decisions by id; missing ones are left out."""
        table = table_schema.decisions
        rows = self._rows_with(table.c.id, names, select(table.c.id, table.c.body))
        return {str(name): msgspec.json.decode(body, type=Decision) for name, body in rows}

    def decided_at(self, decisions: Sequence[str]) -> dict[str, float]:
        """Return when each of these decisions was made, UTC seconds."""
        table = table_schema.decisions
        rows = self._rows_with(table.c.id, decisions, select(table.c.id, table.c.at))
        return {str(name): float(at) for name, at in rows}

    def last_closed(self, about: str) -> Incident | None:
        """Return the last closed incident about a node or a group."""
        table = table_schema.incidents
        query = select(table.c.body).where(table.c.node == shorten_column_text(about), table.c.closed.is_(True))
        with self._engine.connect() as db:
            body = db.execute(query.order_by(table.c.closed_at.desc()).limit(1)).scalar()
        return None if body is None else msgspec.json.decode(body, type=Incident)

    def _rows_with(self, column: Column[Any], ids: Sequence[str], query: Select[Any]) -> Iterator[Any]:
        """Yield the query's rows in which the column is one of these ids, however many they are."""
        with self._engine.connect() as db:
            for start in range(0, len(ids), IDS_AT_ONCE):
                yield from db.execute(query.where(column.in_(ids[start : start + IDS_AT_ONCE])))
