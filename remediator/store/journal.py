"""Load the state at start, and write what each batch of inputs changed in one transaction, durably, before any effect."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Engine, Table, create_engine, event, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url

from remediator.incidents import moved
from remediator.model.inputs import AnyInput
from remediator.model.occurrence import Occurrence
from remediator.model.records import Action, AuditEvent, Decision, Incident, NodeRecord
from remediator.model.rules import PRESENT_MAX_S, WINDOW_MAX_S
from remediator.state import Changes, ClusterState
from remediator.store import schema
from vocabulary.finding import Finding

T = TypeVar("T")
RECENT_CLOSED_MAX = 10_000


class StoreError(Exception):
    """The database cannot be used: what, where, what to do."""


class Journal:
    """The database of one cluster. One process writes it: a lock file beside a SQLite file sees to that."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        self.url = make_url(url)
        file = self.url.database or ":memory:"
        if not create and self.url.get_backend_name() == "sqlite" and not Path(file).is_file():
            raise StoreError(f"there is no database {file}; run this where the remediator keeps it")
        self._lock_fd: int | None = None
        self.engine = _engine(self.url.render_as_string(hide_password=False))
        try:
            schema.metadata.create_all(self.engine)
            with self.engine.begin() as db:
                _check_version(db)
        except Exception as error:
            raise StoreError(
                f"database {self.url}: {error}; check the path, its permissions and that it is ours"
            ) from error

    def lead(self) -> int:
        """Become the one writer and return this term's epoch, one more than the last.

        Raises:
            StoreError: another remediator works on this database.
        """
        if self.url.get_backend_name() == "sqlite" and self.url.database not in {None, "", ":memory:"}:
            lock = Path(f"{self.url.database}.lock")
            self._lock_fd = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StoreError(
                    f"another remediator holds {lock}; stop it first, or give this one its own database"
                ) from error
        with self.engine.begin() as db:
            epoch = int(_meta(db, "epoch") or 0) + 1
            _set_meta(db, "epoch", str(epoch))
        return epoch

    def close(self) -> None:
        """Give up the lock and the connections."""
        self.engine.dispose()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def load(self) -> ClusterState:
        """The state as the last committed batch left it."""
        with self.engine.connect() as db:
            incidents = _records(db, schema.incidents, Incident, schema.incidents.c.closed.is_(False))
            open_ids = select(schema.incidents.c.id).where(schema.incidents.c.closed.is_(False))
            wanted = {f for i in incidents for f in i.findings}
            now = db.execute(select(func.max(schema.inputs.c.at))).scalar() or 0.0
            lately = schema.findings.c.last_seen > now - PRESENT_MAX_S
            state = ClusterState.restored(
                nodes=_records(db, schema.nodes, NodeRecord),
                findings=_records(
                    db,
                    schema.findings,
                    Finding,
                    schema.findings.c.active.is_(True) | lately | schema.findings.c.id.in_(wanted),
                ),
                incidents=incidents,
                actions=_records(db, schema.actions, Action, schema.actions.c.incident.in_(open_ids)),
                occurrences=_records(db, schema.occurrences, Occurrence, schema.occurrences.c.at > now - WINDOW_MAX_S),
            )
            self._load_settled(db, state)
        return state

    def _load_settled(self, db: Connection, state: ClusterState) -> None:
        recent = select(schema.incidents.c.body).where(schema.incidents.c.closed.is_(True))
        recent = recent.order_by(schema.incidents.c.opened_at.desc()).limit(RECENT_CLOSED_MAX)
        for (body,) in db.execute(recent):
            closed = msgspec.json.decode(body, type=Incident)
            state.settled.update((f, closed.id) for f in closed.findings if f in state.findings)

    def commit(self, inputs: Sequence[AnyInput], changes: Changes, epoch: int) -> None:
        """Write one batch whole. It is on the disk when this returns; on an error nothing of it is."""
        with self.engine.begin() as db:
            if int(_meta(db, "epoch") or 0) != epoch:
                raise StoreError(f"epoch {epoch} is over: another remediator leads; this one must stop")
            _upsert(db, schema.nodes, [{"id": n.node, "body": _body(n)} for n in changes.nodes.values()])
            _upsert(
                db,
                schema.findings,
                [
                    {"id": f.id, "node": f.node, "active": f.active, "last_seen": moved(f), "body": _body(f)}
                    for f in changes.findings.values()
                ],
            )
            _upsert(
                db,
                schema.incidents,
                [
                    {
                        "id": i.id,
                        "node": i.node,
                        "closed": i.closed_at is not None,
                        "opened_at": i.opened_at,
                        "body": _body(i),
                    }
                    for i in changes.incidents.values()
                ],
            )
            _upsert(
                db,
                schema.decisions,
                [
                    {"id": d.id, "incident": d.incident, "at": d.at, "body": _body(d)}
                    for d in changes.decisions.values()
                ],
            )
            _upsert(
                db,
                schema.actions,
                [
                    {"id": a.id, "incident": a.incident, "final": a.state.final, "body": _body(a)}
                    for a in changes.actions.values()
                ],
            )
            _insert(db, schema.occurrences, [{"at": o.at, "body": _body(o)} for o in changes.occurrences])
            _insert(db, schema.inputs, [{"epoch": epoch, "at": i.at, "body": _body(i)} for i in inputs])
            _insert(
                db,
                schema.audit,
                [
                    {"epoch": epoch, "at": e.at, "node": e.node, "incident": e.incident, "body": _body(e)}
                    for e in changes.audit
                ],
            )

    def inputs(self) -> Iterator[AnyInput]:
        """Everything the pipeline was ever told, in its order."""
        with self.engine.connect() as db:
            rows = db.execution_options(yield_per=1000).execute(
                select(schema.inputs.c.body).order_by(schema.inputs.c.seq)
            )
            for (body,) in rows:
                yield msgspec.json.decode(body, type=AnyInput)

    def events(self, after: int, limit: int) -> list[tuple[int, AuditEvent]]:
        """Audit events with a sequence above `after`, oldest first."""
        query = (
            select(schema.audit.c.seq, schema.audit.c.body)
            .where(schema.audit.c.seq > after)
            .order_by(schema.audit.c.seq)
            .limit(limit)
        )
        with self.engine.connect() as db:
            return [(seq, msgspec.json.decode(body, type=AuditEvent)) for seq, body in db.execute(query)]

    def recent_incidents(self, limit: int) -> list[Incident]:
        """The latest incidents, open or closed, newest first."""
        query = select(schema.incidents.c.body).order_by(schema.incidents.c.opened_at.desc()).limit(limit)
        with self.engine.connect() as db:
            return [msgspec.json.decode(body, type=Incident) for (body,) in db.execute(query)]

    def incident(self, incident_id: str) -> tuple[Incident, list[Finding], list[Decision], list[Action]] | None:
        """One incident with everything about it, or None."""
        with self.engine.connect() as db:
            found = _records(db, schema.incidents, Incident, schema.incidents.c.id == incident_id)
            if not found:
                return None
            findings = _records(db, schema.findings, Finding, schema.findings.c.id.in_(found[0].findings))
            decisions = _records(db, schema.decisions, Decision, schema.decisions.c.incident == incident_id)
            actions = _records(db, schema.actions, Action, schema.actions.c.incident == incident_id)
        return (
            found[0],
            sorted(findings, key=lambda f: f.first_seen),
            sorted(decisions, key=lambda d: (d.at, d.id)),
            sorted(actions, key=lambda a: (a.planned_at, a.id)),
        )


def _engine(url: str) -> Engine:
    engine = create_engine(url, pool_pre_ping=True)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def durable(connection: Any, _record: object) -> None:
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000", "foreign_keys=ON"):
                connection.execute(f"PRAGMA {pragma}")

    return engine


def _check_version(db: Connection) -> None:
    found = _meta(db, "schema")
    if found is None:
        _set_meta(db, "schema", str(schema.SCHEMA_VERSION))
    elif found != str(schema.SCHEMA_VERSION):
        raise StoreError(f"its schema is version {found}, this program needs {schema.SCHEMA_VERSION}")


def _meta(db: Connection, key: str) -> str | None:
    return db.execute(select(schema.meta.c.value).where(schema.meta.c.key == key)).scalar()


def _set_meta(db: Connection, key: str, value: str) -> None:
    _upsert(db, schema.meta, [{"key": key, "value": value}])


def _body(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record)


def _records(db: Connection, table: Table, kind: type[T], where: Any = None) -> list[T]:
    query = select(table.c.body) if where is None else select(table.c.body).where(where)
    if "seq" in table.c:
        query = query.order_by(table.c.seq)
    return [msgspec.json.decode(body, type=kind) for (body,) in db.execute(query)]


def _insert(db: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        db.execute(table.insert(), rows)


def _upsert(db: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    insert = (postgresql if db.dialect.name == "postgresql" else sqlite).insert(table)
    key = next(iter(table.primary_key.columns)).name
    changed = {column: insert.excluded[column] for column in rows[0] if column != key}
    db.execute(insert.on_conflict_do_update(index_elements=[key], set_=changed), rows)
