"""Search of the audit log, newest first: read-only, outside the decision thread."""

from __future__ import annotations

import msgspec
from sqlalchemy import Engine, func, select

from remediator.model.journal_records import AuditEvent
from remediator.store import table_schema
from remediator.store.audit_log import HEAD
from remediator.store.database_metadata import get_metadata
from remediator.store.row_mapping import shorten_column_text

LOOKED_AT_MAX = 100_000  # rows per search without an index


class AuditQuery(msgspec.Struct, frozen=True):
    """Which events; empty strings mean any.

    `before` is an event's number, `since` and `until` are UTC seconds; 0: no limit.
    """

    node: str = ""
    incident: str = ""
    kind: str = ""
    actor: str = ""
    before: int = 0
    since: float = 0.0
    until: float = 0.0


class AuditPage(msgspec.Struct, frozen=True):
    """Events with their numbers, newest first. `looked_to` is the last number examined, 0 if there are no older ones.

    `head` is the number and `seal` the hash of the log's last event, as its chain keeps them.
    """

    events: tuple[tuple[int, AuditEvent], ...]
    looked_to: int
    head: int
    seal: str


class AuditSearch:
    """Queries on the log. Safe to call from any thread."""

    def __init__(self, engine: Engine, looked_at_max: int = LOOKED_AT_MAX) -> None:
        self._engine = engine
        self._looked_at_max = looked_at_max

    def find(self, wanted: AuditQuery, limit: int) -> AuditPage:
        """Return the newest `limit` matches; without an index, only so many rows are examined."""
        table = table_schema.audit
        with self._engine.connect() as db:
            number, _, seal = (get_metadata(db, HEAD) or "0:").partition(":")
            begin = min(wanted.before or int(number) + 1, int(number) + 1)
            indexed = wanted.node or wanted.incident
            oldest = int(db.execute(select(func.coalesce(func.min(table.c.seq), 0))).scalar_one())
            floor = oldest if indexed else max(oldest, begin - self._looked_at_max)
            query = select(table.c.seq, table.c.at, table.c.body).where(table.c.seq < begin, table.c.seq >= floor)
            for column, word in (
                (table.c.node, shorten_column_text(wanted.node)),
                (table.c.incident, wanted.incident),
                (table.c.kind, wanted.kind),
                (table.c.actor, wanted.actor),
            ):
                if word:
                    query = query.where(column == word)
            if wanted.since:
                query = query.where(table.c.at >= wanted.since)
            if wanted.until:
                query = query.where(table.c.at < wanted.until)
            rows = db.execute(query.order_by(table.c.seq.desc()).limit(limit)).all()
        events = tuple((seq, msgspec.json.decode(body, type=AuditEvent)) for seq, _, body in rows)
        looked_to = events[-1][0] if len(events) == limit else floor
        return AuditPage(events, looked_to if looked_to > oldest else 0, int(number), seal)
