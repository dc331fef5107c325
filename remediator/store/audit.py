"""The audit log: rows are only ever added."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from remediator.model.records import AuditEvent
from remediator.store import rows, schema


def append(db: Connection, events: Sequence[AuditEvent], epoch: int) -> None:
    """Add events, in their order, within the transaction of `db`."""
    if events:
        db.execute(schema.audit.insert(), [rows.audit_row(event, epoch) for event in events])
