"""Evidence bundles, one per order, gzipped as received. Written beside the journal, not through its thread."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, Engine, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from remediator.model.journal_records import Action, AuditEvent
from remediator.model.views_evidence import EvidenceEntry
from remediator.store import audit_log, table_schema
from remediator.store.database_metadata import get_metadata

KEPT_BYTES_MAX = 2 << 30  # the oldest are deleted first


class EvidenceStore:
    """The bundles of one cluster. Safe to call from any thread."""

    def __init__(self, engine: Engine, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._engine = engine
        self._bytes_max = bytes_max

    def ordered_by(self, order: str) -> Action | None:
        """Return the action whose order has this id, also of a closed incident."""
        query = select(table_schema.actions.c.body).where(table_schema.actions.c.id == order)
        with self._engine.connect() as db:
            body = db.execute(query).scalar()
        return None if body is None else msgspec.json.decode(body, type=Action)

    def keep(self, entry: EvidenceEntry, content: bytes) -> bool:
        """Store the bundle for an order. Durable on return. False if there was one already, which stays."""
        table = table_schema.evidence
        with self._engine.begin() as db:
            insert = (postgresql if db.dialect.name == "postgresql" else sqlite).insert(table)
            row = {**msgspec.structs.asdict(entry), "body": content}
            once = insert.values(row).on_conflict_do_nothing(index_elements=["order"]).returning(table.c.order)
            stored = db.execute(once).first() is not None
            if stored:
                audit_log.append_audit_events(db, [_evidence_taken_event(entry)], int(get_metadata(db, "epoch") or 0))
            self._make_room(db, entry.order)
        return stored

    def of_incident(self, incident: str) -> list[EvidenceEntry]:
        """Return the bundles of an incident, oldest first."""
        table = table_schema.evidence
        columns = [table.c[name] for name in EvidenceEntry.__struct_fields__]
        query = select(*columns).where(table.c.incident == incident).order_by(table.c.at, table.c.order)
        with self._engine.connect() as db:
            return [EvidenceEntry(*row) for row in db.execute(query)]

    def content(self, incident: str, order: str) -> bytes | None:
        """Return one gzipped bundle of an incident."""
        table = table_schema.evidence
        query = select(table.c.body).where(table.c.order == order, table.c.incident == incident)
        with self._engine.connect() as db:
            found: bytes | None = db.execute(query).scalar()
        return found

    def _make_room(self, db: Connection, newest: str) -> None:
        table = table_schema.evidence
        over = int(db.execute(select(func.coalesce(func.sum(table.c.bytes), 0))).scalar_one()) - self._bytes_max
        if over <= 0:
            return
        oldest = select(table.c.order, table.c.bytes).where(table.c.order != newest).order_by(table.c.at)
        gone = []
        for order, size in db.execute(oldest):
            gone.append(order)
            over -= size
            if over <= 0:
                break
        db.execute(delete(table).where(table.c.order.in_(gone)))


def _evidence_taken_event(entry: EvidenceEntry) -> AuditEvent:
    return AuditEvent(
        at=entry.at,
        kind="evidence_taken",
        text=f"node {entry.node} uploaded the evidence bundle of {entry.order}, {entry.bytes} bytes",
        actor=f"node {entry.node}"[:255],
        node=entry.node,
        incident=entry.incident,
        data={"order": entry.order, "bytes": entry.bytes},
    )
