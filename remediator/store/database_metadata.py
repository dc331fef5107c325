"""Key-value metadata of the database, including the epoch that fences writers."""

from __future__ import annotations

from sqlalchemy import Connection, select, text

from remediator.store import table_schema
from remediator.store.database import POSTGRESQL, StoreError

LOCKED_S, ANSWERED_S = (
    5,
    20,
)  # PostgreSQL: a write that waits longer for a lock or for its end fails and is retried

_LIMITS = text(
    "SELECT set_config('lock_timeout', :locked, true), set_config('statement_timeout', :answered, true)"  # to the end of it
)


def get_metadata(db: Connection, key: str) -> str | None:
    """Return the value of a key."""
    found: str | None = db.execute(select(table_schema.meta.c.value).where(table_schema.meta.c.key == key)).scalar()
    return found


def set_metadata(db: Connection, key: str, value: str) -> None:
    """Write the value of a key."""
    table = table_schema.meta
    if not db.execute(table.update().where(table.c.key == key).values(value=value)).rowcount:
        db.execute(table.insert(), [{"key": key, "value": value}])


def lock_metadata(db: Connection, key: str) -> None:
    """Lock a value until the transaction ends."""
    table = table_schema.meta
    db.execute(table.update().where(table.c.key == key).values(value=table.c.value))


def begin_write(db: Connection, epoch: int) -> None:
    """Begin a transaction of a term. The epoch's row stays locked to its end, so the next term cannot begin within it.

    Raises:
        StoreError: the term has ended.
        OperationalError: another transaction holds the row's lock.
    """
    if db.dialect.name == POSTGRESQL:
        limits = {"locked": f"{LOCKED_S}s", "answered": f"{ANSWERED_S}s"}
        db.execute(_LIMITS, limits)
    table = table_schema.meta
    mine = table.update().where(table.c.key == "epoch", table.c.value == str(epoch)).values(value=str(epoch))
    if not db.execute(mine).rowcount:
        raise StoreError(f"epoch {epoch} has ended: another replica leads; this one must stop")
