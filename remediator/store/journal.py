"""The journal: loads the state at start, and writes each batch's changes durably in one transaction before any effect."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Engine, Table, bindparam, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from remediator.model.finding_settlement import Settlement
from remediator.model.journal_records import Action, ActionState, AuditEvent, Decision, Incident, NodeRecord
from remediator.model.occurrence import Occurrence
from remediator.model.override_records import OperatorOverride
from remediator.model.pipeline_inputs import AnyInput
from remediator.model.rule_conditions import PRESENT_MAX_S, WINDOW_MAX_S
from remediator.state.cluster_state import ClusterState
from remediator.state.state_changes import StateChanges
from remediator.state.unanswered_actions import REMEMBERED_S, UnansweredActions
from remediator.store import audit_log, corruption_check, row_mapping, schema_upgrade, table_schema
from remediator.store.database import (
    LeadTakenError,
    StoreError,
    open_engine,
    parse_database_url,
    sqlite_file,
    unusable_database_error,
)
from remediator.store.database_metadata import begin_write, get_metadata, set_metadata
from remediator.store.leadership import Leadership
from remediator.store.writer_locks import lock_for
from vocabulary.finding import Finding

__all__ = ["Journal", "LeadTakenError", "StoreError"]

T = TypeVar("T")
LATEST = 100  # inputs whose times define the present
PREPARED_WITHIN_S = 30.0
BY_US = (ActionState.CANCELLED.value, ActionState.EXPIRED.value)  # how an action ends without an answer


class Journal:
    """The database of one cluster. Only the leader writes to it."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        """Open it; nothing is written yet.

        Raises:
            StoreError: it is missing (and `create` is false), is no database, or a newer program wrote it.
        """
        self.url = parse_database_url(url)
        file = sqlite_file(self.url)
        if not create and file is not None and not file.is_file():
            raise StoreError(f"database {file} does not exist; run this on the controller's machine")
        self.engine: Engine = open_engine(self.url)
        self._lock = lock_for(self.url, self.engine)
        self.leadership = Leadership(self._lock)
        if file is not None:
            corruption_check.watch_for_corruption(self.engine, file, lambda why: self.leadership.over(why))  # noqa: PLW0108 - a term sets it later
        try:
            with self.engine.connect() as db:
                schema_upgrade.is_current(db)
        except Exception as error:
            self.engine.dispose()
            raise unusable_database_error(self.url, error) from error

    def prepare(self) -> None:
        """Ensure the current schema, for a tool that runs beside the controller or before it.

        Raises:
            StoreError: it is older and a controller of that version is running, or newer.
        """
        deadline = time.monotonic() + PREPARED_WITHIN_S
        while True:
            with self.engine.connect() as db:
                if schema_upgrade.is_current(db):
                    return
            if self._lock.acquire():
                try:
                    self._upgrade()
                finally:
                    self._lock.release()
                return
            if time.monotonic() >= deadline:
                raise StoreError(f"database {self.url} has an older schema, and a controller is using it")
            time.sleep(0.2)

    def lead(self) -> int:
        """Become the only writer, upgrade the schema, and return this term's epoch, one more than the last.

        Raises:
            LeadTakenError: another remediator works on this database.
            StoreError: its schema cannot be used, or it is damaged.
        """
        self._win()
        self._look_for_damage()
        self._upgrade()
        try:
            return self.leadership.begin_term()
        except (SQLAlchemyError, ConnectionError):
            # The server ends the session of a leader that hangs, as in a long upgrade. No term has begun, so it may
            # retry.
            self._win()
            return self.leadership.begin_term()

    def _win(self) -> None:
        if not self.leadership.campaign():
            raise LeadTakenError(self.taken())

    @property
    def alone(self) -> bool:
        """Whether the database serves one replica only, so that no standby is possible."""
        return not self._lock.can_be_lost

    def taken(self) -> str:
        """Return the message for operators when another replica leads."""
        return f"another controller holds {self._lock.where}; stop it first, or give this one its own database"

    def close(self) -> None:
        """Give up leadership and the connections."""
        self.leadership.resign()
        self.engine.dispose()

    def load(self) -> ClusterState:
        """Load the state of the last committed batch.

        Raises:
            StoreError: a record is invalid.
            SQLAlchemyError: the database is unavailable.
        """
        try:
            return self._load()
        except msgspec.MsgspecError as error:
            raise StoreError(
                corruption_check.corruption_message(str(self.url), f"a record cannot be read: {error}")
            ) from error

    def _load(self) -> ClusterState:
        with self.engine.connect() as db:
            incidents = _load_records(db, table_schema.incidents, Incident, table_schema.incidents.c.closed.is_(False))
            open_ids = select(table_schema.incidents.c.id).where(table_schema.incidents.c.closed.is_(False))
            wanted = {f for i in incidents for f in i.findings}
            now = _last_batch_time(db)
            columns = table_schema.findings.c
            present = columns.active.is_(True) | (columns.last_seen > now - PRESENT_MAX_S)
            findings = {
                f.id: f
                for f in _load_records(db, table_schema.findings, Finding, present)
                + _findings_by_id(db, sorted(wanted))
            }
            how = (columns.id, columns.settled_by, columns.settled_word, columns.settled_at)
            settled = db.execute(select(*how).where(present, columns.settled_by != ""))
            said = db.execute(select(table_schema.operator_overrides.c.id, table_schema.operator_overrides.c.body))
            of_people = table_schema.actions.c.incident == ""
            wanted_actions = table_schema.actions.c.incident.in_(open_ids) | (
                of_people & table_schema.actions.c.final.is_(False)
            )
            state = ClusterState.restored(
                nodes=_load_records(db, table_schema.nodes, NodeRecord),
                findings=findings.values(),
                incidents=incidents,
                actions=_load_records(db, table_schema.actions, Action, wanted_actions),
                occurrences=_load_records(
                    db, table_schema.occurrences, Occurrence, table_schema.occurrences.c.at > now - WINDOW_MAX_S
                ),
                settled=[(finding, Settlement(by, word, at or 0.0)) for finding, by, word, at in settled],
                operator_overrides=[(name, msgspec.json.decode(body, type=OperatorOverride)) for name, body in said],
            )
            columns = table_schema.actions.c
            by_us = columns.state.in_(BY_US) & (columns.finished_at > now - REMEMBERED_S)
            state.unanswered_actions = UnansweredActions(_load_records(db, table_schema.actions, Action, by_us))
            return state

    def commit(self, inputs: Sequence[AnyInput], changes: StateChanges, epoch: int, batch: int | None = None) -> None:
        """Write one batch as a whole. It is durable on return; on an error nothing of it is.

        A connection may break between the commit and its answer. So a batch with a number, one more than the last, can
        be written again: it takes effect once.

        Raises:
            StoreError: this term has ended.
            SQLAlchemyError: it could not be written now.
        """
        with self.engine.begin() as db:
            if not _begin_batch(db, epoch, batch):
                return
            _upsert_rows(db, table_schema.nodes, [row_mapping.node_row(n) for n in changes.nodes.values()])
            settled = dict(changes.settled)
            _upsert_rows(
                db,
                table_schema.findings,
                [
                    row_mapping.finding_row(f) | row_mapping.settlement_columns(settled.pop(f.id, None))
                    for f in changes.findings.values()
                ],
                owner="node",  # even when deleted, it belongs to the node that reported it
            )
            _write_settlements(db, settled)
            _upsert_rows(db, table_schema.incidents, [row_mapping.incident_row(i) for i in changes.incidents.values()])
            _upsert_rows(db, table_schema.decisions, [row_mapping.decision_row(d) for d in changes.decisions.values()])
            _upsert_rows(db, table_schema.actions, [row_mapping.action_row(a) for a in changes.actions.values()])
            _write_overrides(db, changes.operator_overrides)
            _insert_rows(db, table_schema.occurrences, [row_mapping.occurrence_row(o) for o in changes.occurrences])
            _insert_rows(db, table_schema.inputs, [row_mapping.input_row(i, epoch) for i in inputs])
            audit_log.append_audit_events(db, changes.audit, epoch)

    def set_aside(self, item: AnyInput, why: str, event: AuditEvent, epoch: int, batch: int) -> None:
        """Store an input whose results cannot be written separately, with an audit event. Raises as `commit`."""
        with self.engine.begin() as db:
            if _begin_batch(db, epoch, batch):
                _insert_rows(db, table_schema.set_aside, [row_mapping.set_aside_row(item, why, epoch)])
                audit_log.append_audit_events(db, [event], epoch)

    def count_set_aside(self) -> int:
        """Return how many inputs are set aside and not deleted yet."""
        with self.engine.connect() as db:
            return int(db.execute(select(func.count()).select_from(table_schema.set_aside)).scalar_one())

    def inputs(self) -> Iterator[AnyInput]:
        """Yield every input of the pipeline, in order."""
        query = select(table_schema.inputs.c.body).order_by(table_schema.inputs.c.seq)
        with self.engine.connect() as db, db.execution_options(yield_per=1000).execute(query) as found:
            for (body,) in found:
                yield msgspec.json.decode(body, type=AnyInput)

    def events(self, after: int, limit: int) -> list[tuple[int, AuditEvent]]:
        """Return audit events with a sequence above `after`, oldest first."""
        query = (
            select(table_schema.audit.c.seq, table_schema.audit.c.body)
            .where(table_schema.audit.c.seq > after)
            .order_by(table_schema.audit.c.seq)
            .limit(limit)
        )
        with self.engine.connect() as db:
            return [(seq, msgspec.json.decode(body, type=AuditEvent)) for seq, body in db.execute(query)]

    def last_event(self) -> int:
        """Return the sequence of the newest audit event, 0 before the first."""
        with self.engine.connect() as db:
            return int(db.execute(select(func.coalesce(func.max(table_schema.audit.c.seq), 0))).scalar_one())

    def recent_incidents(self, limit: int) -> list[Incident]:
        """Return the latest incidents, open or closed, newest first."""
        query = select(table_schema.incidents.c.body).order_by(table_schema.incidents.c.opened_at.desc()).limit(limit)
        with self.engine.connect() as db:
            return [msgspec.json.decode(body, type=Incident) for (body,) in db.execute(query)]

    def incident(self, incident_id: str) -> tuple[Incident, list[Finding], list[Decision], list[Action]] | None:
        """Return one incident with everything about it, or None."""
        with self.engine.connect() as db:
            found = _load_records(db, table_schema.incidents, Incident, table_schema.incidents.c.id == incident_id)
            if not found:
                return None
            findings = _findings_by_id(db, found[0].findings)
            decisions = _load_records(
                db, table_schema.decisions, Decision, table_schema.decisions.c.incident == incident_id
            )
            actions = _load_records(db, table_schema.actions, Action, table_schema.actions.c.incident == incident_id)
        return (
            found[0],
            sorted(findings, key=lambda f: f.first_seen),
            sorted(decisions, key=lambda d: (d.at, d.id)),
            sorted(actions, key=lambda a: (a.planned_at, a.id)),
        )

    def _look_for_damage(self) -> None:
        file = sqlite_file(self.url)
        if file is None:
            return
        try:
            with self.engine.connect() as db:
                what = corruption_check.find_corruption(db)
        except SQLAlchemyError as error:
            raise unusable_database_error(self.url, error) from error
        if what:
            raise StoreError(corruption_check.corruption_message(file, what))

    def _upgrade(self) -> None:
        try:
            with self.engine.begin() as db:
                schema_upgrade.upgrade_schema(db)
        except SQLAlchemyError as error:
            raise unusable_database_error(self.url, error) from error


def _load_records(db: Connection, table: Table, kind: type[T], where: Any = None) -> list[T]:
    query = select(table.c.body) if where is None else select(table.c.body).where(where)
    if "seq" in table.c:
        query = query.order_by(table.c.seq)
    return [msgspec.json.decode(body, type=kind) for (body,) in db.execute(query)]


def _begin_batch(db: Connection, epoch: int, batch: int | None) -> bool:
    """Begin to write a batch of a term. False if it is written already. Raises as `begin_write`."""
    begin_write(db, epoch)
    if batch is not None:
        if get_metadata(db, "batch") == f"{epoch}:{batch}":
            return False
        set_metadata(db, "batch", f"{epoch}:{batch}")
    return True


def _last_batch_time(db: Connection) -> float:
    """Return when the last batches were, UTC seconds.

    A clock that was ahead for a moment must not make earlier data old.
    """
    latest = select(table_schema.inputs.c.at).order_by(table_schema.inputs.c.seq.desc()).limit(LATEST)
    return min(db.execute(latest).scalars(), default=0.0)


def _write_settlements(db: Connection, settled: Mapping[str, Settlement | None]) -> None:
    """Write the settlements of findings that are otherwise unchanged."""
    if settled:
        table = table_schema.findings
        columns: dict[str, Any] = {name: bindparam(name) for name in row_mapping.settlement_columns(None)}
        update = table.update().where(table.c.id == bindparam("finding")).values(columns)
        db.execute(update, [{"finding": name, **row_mapping.settlement_columns(by)} for name, by in settled.items()])


def _write_overrides(db: Connection, said: Mapping[str, OperatorOverride | None]) -> None:
    """Write operator overrides for the whole cluster, and delete ended ones."""
    table = table_schema.operator_overrides
    _upsert_rows(
        db,
        table,
        [{"id": name, "body": row_mapping.encode_record_body(each)} for name, each in said.items() if each is not None],
    )
    if over := [name for name, each in said.items() if each is None]:
        db.execute(table.delete().where(table.c.id.in_(over)))


def _findings_by_id(db: Connection, ids: Sequence[str], at_once: int = 1000) -> list[Finding]:
    """Return findings by id, in chunks: a statement takes only so many parameters."""
    parts = [ids[start : start + at_once] for start in range(0, len(ids), at_once)]
    return [
        f
        for part in parts
        for f in _load_records(db, table_schema.findings, Finding, table_schema.findings.c.id.in_(part))
    ]


def _insert_rows(db: Connection, table: Table, values: list[row_mapping.Row]) -> None:
    if values:
        db.execute(table.insert(), values)


def _upsert_rows(db: Connection, table: Table, values: list[row_mapping.Row], owner: str = "") -> None:
    """Insert or update rows. `owner`: a column; a row with another value there stays as it is."""
    if not values:
        return
    insert = (postgresql if db.dialect.name == "postgresql" else sqlite).insert(table)
    key = next(iter(table.primary_key.columns)).name
    changed = {column: insert.excluded[column] for column in values[0] if column != key}
    mine = table.c[owner] == insert.excluded[owner] if owner else None
    db.execute(insert.on_conflict_do_update(index_elements=[key], set_=changed, where=mine), values)
