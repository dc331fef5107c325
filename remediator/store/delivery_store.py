"""The outbox of notifications, beside the journal and not through its thread."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, Engine, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from remediator.model.delivery import Delivery, DeliveryState, LeadershipLost
from remediator.store import table_schema
from remediator.store.database import StoreError
from remediator.store.database_metadata import begin_write

log = logging.getLogger(__name__)
deliveries = table_schema.deliveries


class DeliveryStore:
    """Rows of the outbox. Safe to call from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, new: Sequence[Delivery]) -> None:
        """Add new ones; known ids stay unchanged."""
        if new:
            with self._engine.begin() as db:
                statement = _insert_statement(db).on_conflict_do_nothing(index_elements=["id"])
                db.execute(statement, [_delivery_row(item) for item in new])

    def save(self, changed: Sequence[Delivery], epoch: int) -> None:
        """Save them as they are now, all or none, durably.

        Raises:
            LeadershipLost: this term has ended.
        """
        with self._engine.begin() as db:
            try:
                begin_write(db, epoch)
            except StoreError as error:
                raise LeadershipLost(f"{error}; no more messages are sent") from error
            insert = _insert_statement(db)
            kept = {name: insert.excluded[name] for name in ("state", "told", "batch", "claimed_at", "body")}
            rows = [_delivery_row(item) for item in changed]
            db.execute(insert.on_conflict_do_update(index_elements=["id"], set_=kept), rows)

    def waiting(self, receiver: str) -> list[Delivery]:
        """Return what is to be sent, oldest first."""
        return self._where(deliveries.c.receiver == receiver, deliveries.c.state == DeliveryState.WAITING.value)

    def unresolved(self, receiver: str) -> list[Delivery]:
        """Return what the receiver got and must be resolved there, oldest first."""
        return self._where(
            deliveries.c.receiver == receiver,
            deliveries.c.state == DeliveryState.SENT.value,
            deliveries.c.told.is_(True),
        )

    def latest(self, limit: int) -> list[Delivery]:
        """Return the newest of all receivers, newest first."""
        query = select(deliveries.c.body).order_by(deliveries.c.created_at.desc(), deliveries.c.id).limit(limit)
        with self._engine.connect() as db:
            return [msgspec.json.decode(body, type=Delivery) for (body,) in db.execute(query)]

    def begun(self, receiver: str, since: float) -> list[float]:
        """Return the start times of batches that count against the rate."""
        columns = (deliveries.c.batch, deliveries.c.claimed_at)
        query = select(*columns).where(deliveries.c.receiver == receiver, deliveries.c.claimed_at > since).distinct()
        with self._engine.connect() as db:
            return [at for _, at in db.execute(query)]

    def left_for(self) -> dict[str, int]:
        """Return how many wait, by receiver."""
        query = select(deliveries.c.receiver, func.count()).where(deliveries.c.state == DeliveryState.WAITING.value)
        with self._engine.connect() as db:
            return {str(name): int(count) for name, count in db.execute(query.group_by(deliveries.c.receiver))}

    def forget(self, before: float) -> None:
        """Drop what ended before then."""
        over = deliveries.c.state != DeliveryState.WAITING.value
        with self._engine.begin() as db:
            db.execute(delete(deliveries).where(over, deliveries.c.told.is_(False), deliveries.c.created_at < before))

    def _where(self, *conditions: object) -> list[Delivery]:
        query = select(deliveries.c.body).where(*conditions)  # type: ignore[arg-type]  # clauses of the table above
        with self._engine.connect() as db:
            found = db.execute(query.order_by(deliveries.c.created_at, deliveries.c.id))
            return [item for (body,) in found if (item := _decode_delivery(body)) is not None]


def _decode_delivery(body: bytes) -> Delivery | None:
    """Decode a row. An unreadable one must not block those behind it."""
    try:
        return msgspec.json.decode(body, type=Delivery)
    except msgspec.DecodeError as error:
        log.error("a row of the outbox cannot be read (%s): %r", error, body[:500])
        return None


def _insert_statement(db: Connection) -> postgresql.Insert | sqlite.Insert:
    if db.dialect.name == "postgresql":
        return postgresql.insert(deliveries)
    return sqlite.insert(deliveries)


def _delivery_row(item: Delivery) -> dict[str, object]:
    return {
        "id": item.id,
        "receiver": item.receiver,
        "state": item.state.value,
        "told": item.told,
        "batch": item.batch,
        "claimed_at": item.claimed_at,
        "created_at": item.created_at,
        "body": msgspec.json.encode(item),
    }
