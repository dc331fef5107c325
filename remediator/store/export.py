"""Everything the database holds since some time, a line of JSON a record, without ever holding it all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, Table, or_, select

from remediator.model.evidence import EvidenceEntry
from remediator.store import schema

AT_ONCE = 1000


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record. `seq`, `epoch` and `hash` where the table has them, so that the chain of the audit log can be walked."""

    table: str
    record: msgspec.Raw
    seq: int | None = None
    epoch: int | None = None
    hash: str = ""


def exported(engine: Engine, since: float) -> Iterator[bytes]:
    """Lines, each with its newline: the state of one moment. Credentials are left out, and of evidence its contents."""
    one_moment = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
    with engine.connect().execution_options(**one_moment) as db:
        if not one_moment:
            db.exec_driver_sql("BEGIN")
        for table, condition in _tables(since):
            for row in _rows(db, table, condition):
                yield msgspec.json.encode(_line(table, row)) + b"\n"


def _tables(since: float) -> list[tuple[Table, Any]]:
    incidents, actions = schema.incidents.c, schema.actions.c
    return [
        (schema.nodes, None),
        (schema.findings, or_(schema.findings.c.active.is_(True), schema.findings.c.last_seen >= since)),
        (schema.incidents, or_(incidents.closed.is_(False), incidents.closed_at >= since)),
        (schema.decisions, schema.decisions.c.at >= since),
        (schema.actions, or_(actions.final.is_(False), actions.finished_at >= since, actions.planned_at >= since)),
        (schema.occurrences, schema.occurrences.c.at >= since),
        (schema.evidence, schema.evidence.c.at >= since),
        (schema.inputs, schema.inputs.c.at >= since),
        (schema.standing, None),
        (schema.set_aside, schema.set_aside.c.at >= since),
        (schema.audit, schema.audit.c.at >= since),
    ]


def _rows(db: Connection, table: Table, condition: Any) -> Iterator[Any]:
    columns = [c for c in table.c if not (table is schema.evidence and c.name == "body")]
    query = select(*columns) if condition is None else select(*columns).where(condition)
    query = query.order_by(*table.primary_key.columns)
    with db.execution_options(yield_per=AT_ONCE).execute(query) as found:
        yield from found.mappings()


def _line(table: Table, row: Any) -> Line:
    if table is schema.evidence:
        entry = EvidenceEntry(**{name: row[name] for name in EvidenceEntry.__struct_fields__})
        return Line(str(table.name), msgspec.Raw(msgspec.json.encode(entry)))
    return Line(str(table.name), msgspec.Raw(row["body"]), row.get("seq"), row.get("epoch"), row.get("hash", ""))
