"""Iterates over the stored records of a table in batches, as plain JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from sqlalchemy import Column, Connection, LargeBinary, MetaData, Table, bindparam, select

BATCH = 1000
Document = dict[str, Any]


def rewrite(db: Connection, name: str, key: Column[Any], change: Callable[[Document], Document | None]) -> None:
    """Replace the record in each row by the result of `change`; None leaves it."""

    def changed(document: Document) -> Document | None:
        new = change(document)
        return None if new is None else {"body": msgspec.json.encode(new)}

    fill(db, name, key, [Column("body", LargeBinary)], changed)


def fill(
    db: Connection,
    name: str,
    key: Column[Any],
    columns: list[Column[Any]],
    values: Callable[[Document], Document | None],
) -> None:
    """Set `columns` of each row to the result of `values` for its record; None leaves the row."""
    body = Column("body", LargeBinary)
    table = Table(name, MetaData(), key, body, *(c for c in columns if c.name != "body"))
    update = table.update().where(key == bindparam("the_key")).values({c.name: bindparam(c.name) for c in columns})
    query = select(key, table.c.body).order_by(key).limit(BATCH)
    last = None
    while rows := db.execute(query if last is None else query.where(key > last)).all():
        last = rows[-1][0]
        found = [(each, values(msgspec.json.decode(stored))) for each, stored in rows]
        changes = [{"the_key": each} | new for each, new in found if new is not None]
        if changes:
            db.execute(update, changes)
