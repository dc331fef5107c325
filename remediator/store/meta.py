"""The few words kept about the whole database, and the one that fences writers: the epoch."""

from __future__ import annotations

from sqlalchemy import Connection, select

from remediator.store import schema
from remediator.store.database import StoreError


def get_meta(db: Connection, key: str) -> str | None:
    """The word under a key."""
    found: str | None = db.execute(select(schema.meta.c.value).where(schema.meta.c.key == key)).scalar()
    return found


def set_meta(db: Connection, key: str, value: str) -> None:
    """Write the word under a key."""
    table = schema.meta
    if not db.execute(table.update().where(table.c.key == key).values(value=value)).rowcount:
        db.execute(table.insert(), [{"key": key, "value": value}])


def lock_meta(db: Connection, key: str) -> None:
    """Keep others from changing a word until the transaction ends."""
    table = schema.meta
    db.execute(table.update().where(table.c.key == key).values(value=table.c.value))


def begin_write(db: Connection, epoch: int) -> None:
    """Begin a transaction of a term. The row of the epoch stays locked to its end: the next term cannot begin within it.

    Raises:
        StoreError: the term is over.
    """
    table = schema.meta
    mine = table.update().where(table.c.key == "epoch", table.c.value == str(epoch)).values(value=str(epoch))
    if not db.execute(mine).rowcount:
        raise StoreError(f"epoch {epoch} is over: another remediator leads; this one must stop")
