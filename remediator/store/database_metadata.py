"""The few words kept about the whole database, and the one that fences writers: the epoch."""

from __future__ import annotations

from sqlalchemy import Connection, select, text

from remediator.store import table_schema
from remediator.store.database import POSTGRESQL, StoreError

LOCKED_S, ANSWERED_S = (
    5,
    20,
)  # PostgreSQL: a write that waits longer for another's lock, or for its end, fails and is tried again

_LIMITS = text(
    "SELECT set_config('lock_timeout', :locked, true), set_config('statement_timeout', :answered, true)"  # to the end of it
)


def get_metadata(db: Connection, key: str) -> str | None:
    """The word under a key."""
    found: str | None = db.execute(select(table_schema.meta.c.value).where(table_schema.meta.c.key == key)).scalar()
    return found


def set_metadata(db: Connection, key: str, value: str) -> None:
    """Write the word under a key."""
    table = table_schema.meta
    if not db.execute(table.update().where(table.c.key == key).values(value=value)).rowcount:
        db.execute(table.insert(), [{"key": key, "value": value}])


def lock_metadata(db: Connection, key: str) -> None:
    """Keep others from changing a word until the transaction ends."""
    table = table_schema.meta
    db.execute(table.update().where(table.c.key == key).values(value=table.c.value))


def begin_write(db: Connection, epoch: int) -> None:
    """Begin a transaction of a term. The row of the epoch stays locked to its end: the next term cannot begin within it.

    Raises:
        StoreError: the term is over. OperationalError: somebody else keeps the row locked.
    """
    if db.dialect.name == POSTGRESQL:
        limits = {"locked": f"{LOCKED_S}s", "answered": f"{ANSWERED_S}s"}
        db.execute(_LIMITS, limits)
    table = table_schema.meta
    mine = table.update().where(table.c.key == "epoch", table.c.value == str(epoch)).values(value=str(epoch))
    if not db.execute(mine).rowcount:
        raise StoreError(f"epoch {epoch} is over: another remediator leads; this one must stop")
