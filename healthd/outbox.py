"""What the node must not forget, in one SQLite file: findings, changes not yet reported, kernel cursor, orders.

Write-ahead log, ``synchronous=FULL``: when `commit` returns, a power cut loses nothing of it. The kernel cursor moves
in the very transaction that stores what was read, so no line is lost and none counts twice.

Bounds. A change supersedes earlier changes of the same finding, as it carries the whole finding: days of outage cost
one row per finding. Past `CHANGES_MAX` of those, the changes of cleared findings are dropped, oldest first, and
counted. Of findings that are neither active nor waiting to be reported, the newest `FINDINGS_KEPT` stay.

One connection, one lock: every thread may call every method. Who holds `lock` sees and publishes one instant.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from healthd.samples.kernel import Cursor
from vocabulary.finding import Finding
from vocabulary.wire import FindingChange, Gpu

CHANGES_MAX = 50_000
FINDINGS_KEPT = 10_000
PRUNE_EVERY_COMMITS = 256
PRUNED_MAX = 2 * PRUNE_EVERY_COMMITS  # at once: more than comes in between, and no pause that a kernel line would feel

_SCHEMA = """
create table if not exists meta (key text primary key, value blob not null) without rowid;
create table if not exists findings (
    id text primary key, active integer not null, last_seen real not null, body blob not null);
create index if not exists findings_by_state on findings (active, last_seen);
create table if not exists changes (
    seq integer primary key autoincrement, finding text not null unique, active integer not null, body blob not null);
create table if not exists orders (
    id text primary key, state text not null, final integer not null, sent integer not null, at real not null,
    body blob not null, answer blob not null);
create index if not exists orders_by_state on orders (final, sent);
"""

T = TypeVar("T")


class OutboxFull(Exception):
    """Nothing can be written now: the disk is full or failing. What was to be written must be kept and tried again."""


class OutboxCorrupt(Exception):
    """The file is no usable database. It must be moved aside, and the node tested anew."""


class Condemned(msgspec.Struct, frozen=True):
    """An order named this node as one that must leave. Lifted by a passed preflight only."""

    order: str
    at: float
    reason: str


class Outbox:
    """The database. One that cannot be read is replaced by a fresh one, and `problem` says so.

    Since it was opened, `dropped` counts changes given up for lack of room, `rejected` those the centre did not want.

    Raises:
        OutboxFull: it can be neither opened nor made.
    """

    def __init__(self, path: Path, now: float) -> None:
        self._path = path
        self.lock = threading.RLock()
        self._encoder = msgspec.json.Encoder()
        self._commits = 0
        self.dropped = self.rejected = 0
        self.problem = ""
        try:
            self._open(now)
        except OutboxCorrupt as error:
            self.renew(now, str(error))

    def renew(self, now: float, problem: str) -> None:
        """Go on with a fresh file. The unusable one is moved aside, never deleted; `problem` says where and why.

        Raises:
            OutboxFull: no fresh one can be made.
        """
        with self.lock:
            self.connection.close()
            aside = self._path.with_name(f"{self._path.name}.corrupt-{int(now)}")
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{self._path}{suffix}").rename(f"{aside}{suffix}")
            self._open(now)
            self.problem = f"{problem}; moved to {aside}"

    def commit(
        self, findings: Sequence[Finding], cursor: Cursor | None = None, *, lift_condemned: bool = False
    ) -> None:
        """Store findings as they stand now, each as a new change, and move the cursor with them.

        Raises:
            OutboxFull, OutboxCorrupt: nothing of it was stored.
        """
        with self.transaction():
            for finding in findings:
                self._store(finding)
            if cursor is not None:
                self.put("cursor", cursor)
            if lift_condemned:
                self.connection.execute("delete from meta where key = 'condemned'")
            self._commits += 1
            if self._commits % PRUNE_EVERY_COMMITS == 0:
                self._prune()

    def active(self) -> list[Finding]:
        """All active findings, oldest first."""
        rows = self.rows("select body from findings where active = 1 order by last_seen")
        return [self._decode(body, Finding) for (body,) in rows]

    def changes(self, limit: int) -> list[FindingChange]:
        """The oldest changes the centre has not acknowledged."""
        rows = self.rows("select seq, body from changes order by seq limit ?", limit)
        return [FindingChange(seq, self._decode(body, Finding)) for seq, body in rows]

    def acknowledge(self, seq: int) -> None:
        """The centre has durably stored every change up to `seq`."""
        with self.transaction():
            self.connection.execute("delete from changes where seq <= ?", (seq,))

    def set_aside(self, seq: int) -> None:
        """The centre does not want this change, ever; the finding stays as it is."""
        with self.transaction():
            self.connection.execute("delete from changes where seq = ?", (seq,))
        self.rejected += 1

    def waiting(self) -> int:
        """How many changes the centre has not acknowledged."""
        return int(self.rows("select count(*) from changes")[0][0])

    def cursor(self) -> Cursor | None:
        """How far the kernel log has been read."""
        return self.get("cursor", Cursor)

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs this node is expected to have."""
        return self.get("gpus", tuple[Gpu, ...]) or ()

    def expect_gpus(self, gpus: Sequence[Gpu]) -> None:
        """From now on these are expected."""
        with self.transaction():
            self.put("gpus", tuple(gpus))

    def condemned(self) -> Condemned | None:
        """Whether, and by what, this node is condemned."""
        return self.get("condemned", Condemned)

    def get(self, key: str, kind: type[T]) -> T | None:
        """One small fact by name; None if it was never stored."""
        rows = self.rows("select value from meta where key = ?", key)
        return self._decode(rows[0][0], kind) if rows else None

    def put(self, key: str, value: object) -> None:
        """Store one small fact; part of the caller's transaction."""
        self.connection.execute("insert or replace into meta values (?, ?)", (key, self._encoder.encode(value)))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, durable at its end; within another transaction, part of that one.

        Raises:
            OutboxFull, OutboxCorrupt: nothing of it was stored.
        """
        with self.lock:
            if self.connection.in_transaction:
                yield
                return
            try:
                self.connection.execute("begin immediate")
                yield
                self.connection.execute("commit")
            except BaseException as error:
                with contextlib.suppress(sqlite3.Error):
                    self.connection.execute("rollback")
                if isinstance(error, sqlite3.DatabaseError):
                    raise self._translated(error) from error
                raise

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """The answer to a query, whole.

        Raises:
            OutboxFull, OutboxCorrupt: it cannot be read.
        """
        with self.lock:
            try:
                return self.connection.execute(sql, values).fetchall()
            except sqlite3.DatabaseError as error:
                raise self._translated(error) from error

    def close(self) -> None:
        """Let go of the file."""
        with self.lock:
            self.connection.close()

    def _open(self, now: float) -> None:
        try:
            self.connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self.connection.execute("pragma journal_mode=wal")
            self.connection.execute("pragma synchronous=full")
            self.connection.execute("pragma cache_size=-512")
            with self.transaction():
                self._prepare(now)
        except sqlite3.DatabaseError as error:
            raise self._translated(error) from error

    def _prepare(self, now: float) -> None:
        (verdict,) = self.connection.execute("pragma quick_check(1)").fetchone()
        if verdict != "ok":
            raise OutboxCorrupt(f"{self._path}: {verdict}")
        for statement in _SCHEMA.split(";"):
            self.connection.execute(statement)
        # A new file starts above every number an earlier one can have reached: the centre may remember those.
        self.connection.execute(
            "insert into sqlite_sequence (name, seq) select 'changes', ?"
            " where not exists (select 1 from sqlite_sequence where name = 'changes')",
            (int(now * 1000),),
        )

    def _store(self, finding: Finding) -> None:
        body = self._encoder.encode(finding)
        self.connection.execute(
            "insert or replace into findings values (?, ?, ?, ?)",
            (finding.id, finding.active, finding.last_seen, body),
        )
        self.connection.execute(
            "insert or replace into changes (finding, active, body) values (?, ?, ?)",
            (finding.id, finding.active, body),
        )

    def _prune(self) -> None:
        ((changes,),) = self.rows("select count(*) from changes")
        if changes > CHANGES_MAX:
            done = self.connection.execute(
                "delete from changes where seq in (select seq from changes where active = 0 order by seq limit ?)",
                (min(changes - CHANGES_MAX, PRUNED_MAX),),
            )
            self.dropped += done.rowcount
        ((findings,),) = self.rows("select count(*) from findings")
        if findings > FINDINGS_KEPT:
            self.connection.execute(
                "delete from findings where id in (select id from findings f where active = 0"
                " and not exists (select 1 from changes where finding = f.id) order by last_seen limit ?)",
                (min(findings - FINDINGS_KEPT, PRUNED_MAX),),
            )

    def _decode(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            raise OutboxCorrupt(f"{self._path}: a stored {kind} cannot be read: {error}") from error

    def _translated(self, error: sqlite3.DatabaseError) -> Exception:
        if isinstance(error, sqlite3.OperationalError):
            return OutboxFull(f"{self._path}: {error}; free some space, or check the disk")
        if type(error) is sqlite3.DatabaseError:  # "malformed", "not a database"
            return OutboxCorrupt(f"{self._path}: {error}")
        return error  # our own mistake: let it be seen as such
