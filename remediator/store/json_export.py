"""Exports everything since some time as JSON lines, in constant memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, Table, or_, select

from remediator.model.views_evidence import EvidenceEntry
from remediator.store import table_schema

AT_ONCE = 1000


class ExportLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record. `seq`, `epoch` and `hash` where the table has them, so that the audit log's chain can be verified."""

    table: str
    record: msgspec.Raw
    seq: int | None = None
    epoch: int | None = None
    hash: str = ""


def export_lines(engine: Engine, since: float) -> Iterator[bytes]:
    """Yield lines with newlines, from one snapshot. Without credentials, and without the content of evidence."""
    one_moment = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
    with engine.connect().execution_options(**one_moment) as db:
        if not one_moment:
            db.exec_driver_sql("BEGIN")
        for table, condition in _exported_tables(since):
            for row in _select_rows(db, table, condition):
                yield msgspec.json.encode(_export_line(table, row)) + b"\n"


def _exported_tables(since: float) -> list[tuple[Table, Any]]:
    incidents, actions = table_schema.incidents.c, table_schema.actions.c
    return [
        (table_schema.nodes, None),
        (
            table_schema.findings,
            or_(table_schema.findings.c.active.is_(True), table_schema.findings.c.last_seen >= since),
        ),
        (table_schema.incidents, or_(incidents.closed.is_(False), incidents.closed_at >= since)),
        (table_schema.decisions, table_schema.decisions.c.at >= since),
        (
            table_schema.actions,
            or_(actions.final.is_(False), actions.finished_at >= since, actions.planned_at >= since),
        ),
        (table_schema.occurrences, table_schema.occurrences.c.at >= since),
        (table_schema.evidence, table_schema.evidence.c.at >= since),
        (table_schema.inputs, table_schema.inputs.c.at >= since),
        (table_schema.operator_overrides, None),
        (table_schema.set_aside, table_schema.set_aside.c.at >= since),
        (table_schema.audit, table_schema.audit.c.at >= since),
    ]


def _select_rows(db: Connection, table: Table, condition: Any) -> Iterator[Any]:
    columns = [c for c in table.c if not (table is table_schema.evidence and c.name == "body")]
    query = select(*columns) if condition is None else select(*columns).where(condition)
    query = query.order_by(*table.primary_key.columns)
    with db.execution_options(yield_per=AT_ONCE).execute(query) as found:
        yield from found.mappings()


def _export_line(table: Table, row: Any) -> ExportLine:
    if table is table_schema.evidence:
        entry = EvidenceEntry(**{name: row[name] for name in EvidenceEntry.__struct_fields__})
        return ExportLine(str(table.name), msgspec.Raw(msgspec.json.encode(entry)))
    return ExportLine(str(table.name), msgspec.Raw(row["body"]), row.get("seq"), row.get("epoch"), row.get("hash", ""))
