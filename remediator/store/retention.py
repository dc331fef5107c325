"""Retention: deletes old data in small steps while the leader is idle, and releases the space."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from sqlalchemy import Connection, Engine, Table, delete, func, select

from remediator.model.journal_records import Incident
from remediator.model.rule_conditions import PRESENT_MAX_S, WINDOW_MAX_S
from remediator.store import audit_log, table_schema
from remediator.store.database_metadata import begin_write
from vocabulary.clock import Clock

DAY_S = 86400.0
HISTORY_DAYS_MIN = int(WINDOW_MAX_S / DAY_S) + 1  # rules count that far back
ROWS, INCIDENTS, PAGES = 500, 20, 200  # per step: a few milliseconds
FREE_PAGES = 1000  # of SQLite, kept free for new rows
PAUSE_S, REST_S = 0.5, 600.0


class RetentionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long data is kept; 0 is forever.

    `inputs_days`: inputs, for replays. `history_days`: ended findings, closed incidents with all that belongs to them,
    occurrences, inputs set aside. `audit_days`: the audit log.
    """

    inputs_days: int = 30
    history_days: int = 365
    audit_days: int = 1095

    def __post_init__(self) -> None:
        if min(self.inputs_days, self.history_days, self.audit_days) < 0:
            raise ValueError("retention: days must be 0 (forever) or more")
        if 0 < self.history_days < HISTORY_DAYS_MIN:
            raise ValueError(f"retention.history_days: rules look back that far; at least {HISTORY_DAYS_MIN}, or 0")


class RetentionCleaner:
    """Called by the decision thread when idle; each call does one small step, or nothing."""

    def __init__(self, engine: Engine, keep: RetentionSettings, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._due = 0.0
        pieces: list[tuple[int, Callable[[Connection, float, int], int]]] = [
            (keep.inputs_days, _delete_old_inputs),
            (keep.history_days, _delete_old_incidents),
            (keep.history_days, _delete_old_manual_actions),
            (keep.history_days, _delete_old_findings),
            (keep.history_days, _delete_old_occurrences),
            (keep.history_days, _delete_old_set_aside),
            (keep.audit_days, self._audit),
        ]
        self._pieces = [(days * DAY_S, piece) for days, piece in pieces if days]
        self._turn = 0

    def __call__(self, epoch: int) -> None:
        """Run one step, if one is due."""
        now = self._clock.monotonic()
        if now >= self._due:
            self._due = now + (PAUSE_S if self.step(epoch) else REST_S)

    def step(self, epoch: int) -> bool:
        """Run the next step. False if a whole round found nothing to do."""
        for _ in range(len(self._pieces)):
            age_s, piece = self._pieces[self._turn]
            with self._engine.begin() as db:
                begin_write(db, epoch)
                if piece(db, self._clock.wall() - age_s, epoch):
                    return True
            self._turn = (self._turn + 1) % len(self._pieces)
        return self._engine.dialect.name == "sqlite" and _release_free_pages(self._engine)

    def _audit(self, db: Connection, before: float, epoch: int) -> int:
        return audit_log.cut_audit_log(db, before, self._clock.wall(), epoch, 10 * ROWS)


def _delete_old_inputs(db: Connection, before: float, _epoch: int) -> int:
    """Delete the oldest, but never the last: loading takes the time from it."""
    table = table_schema.inputs
    newest = select(func.max(table.c.seq)).scalar_subquery()
    return _delete_oldest_rows(db, table, before, table.c.seq < newest)


def _delete_old_occurrences(db: Connection, before: float, _epoch: int) -> int:
    return _delete_oldest_rows(db, table_schema.occurrences, before)


def _delete_old_set_aside(db: Connection, before: float, _epoch: int) -> int:
    return _delete_oldest_rows(db, table_schema.set_aside, before)


def _delete_oldest_rows(db: Connection, table: Table, before: float, *conditions: object) -> int:
    oldest = select(table.c.seq).where(table.c.at < before, *conditions)  # type: ignore[arg-type]  # clauses of that table
    seqs = db.execute(oldest.order_by(table.c.at).limit(ROWS)).scalars().all()
    if seqs:
        db.execute(delete(table).where(table.c.seq.in_(seqs)))
    return len(seqs)


def _delete_old_incidents(db: Connection, before: float, _epoch: int) -> int:
    table = table_schema.incidents
    old = select(table.c.id).where(table.c.closed.is_(True), table.c.closed_at < before).limit(INCIDENTS)
    ids = db.execute(old).scalars().all()
    if ids:
        for other in (table_schema.decisions, table_schema.actions, table_schema.evidence):
            db.execute(delete(other).where(other.c.incident.in_(ids)))
        db.execute(delete(table).where(table.c.id.in_(ids)))
    return len(ids)


def _delete_old_manual_actions(db: Connection, before: float, _epoch: int) -> int:
    """Delete operators' manual actions, which belong to no incident."""
    columns = table_schema.actions.c
    over = select(columns.id).where(columns.incident == "", columns.final.is_(True), columns.planned_at < before)
    ids = db.execute(over.limit(ROWS)).scalars().all()
    if ids:
        db.execute(delete(table_schema.actions).where(columns.id.in_(ids)))
    return len(ids)


def _delete_old_findings(db: Connection, before: float, _epoch: int) -> int:
    """Delete ended findings; one that an incident still refers to stays with it."""
    table, incidents = table_schema.findings, table_schema.incidents
    lasting = select(incidents.c.body).where(incidents.c.opened_at < before + PRESENT_MAX_S)
    kept = {f for (body,) in db.execute(lasting) for f in msgspec.json.decode(body, type=Incident).findings}
    old = select(table.c.id).where(table.c.active.is_(False), table.c.last_seen < before)
    found = db.execute(old.order_by(table.c.last_seen).limit(ROWS + len(kept))).scalars().all()
    gone = [each for each in found if each not in kept][:ROWS]
    if gone:
        db.execute(delete(table).where(table.c.id.in_(gone)))
    return len(gone)


def _release_free_pages(engine: Engine) -> bool:
    """Release a few of SQLite's free pages to the file system; without auto_vacuum this does nothing."""
    with engine.connect() as db:
        bits = int(db.exec_driver_sql("PRAGMA auto_vacuum").scalar() or 0)
        free = int(db.exec_driver_sql("PRAGMA freelist_count").scalar() or 0)
        if bits != 2 or free <= FREE_PAGES:
            return False
        db.exec_driver_sql(f"PRAGMA incremental_vacuum({PAGES})").all()
    return True
