"""The node's durable state, in one SQLite file: findings, undelivered changes, kernel cursor, orders.

Write-ahead log, ``synchronous=FULL``: when `commit` returns, a power cut loses nothing of it. The kernel cursor moves
in the transaction that stores what was read, so no line is lost and none counts twice.

Bounds. A change supersedes earlier changes of the same finding, as it carries the whole finding: days of outage cost
one row per finding. Past `CHANGES_MAX` of those, the changes of cleared findings are dropped, oldest first, and
counted. Of findings that are neither active nor pending, the newest `FINDINGS_KEPT` stay.

The database is completed under another name and then renamed, so an empty file is never a valid one. A small file
beside it (`history_marker.py`) records that there is a history and whether the node is condemned: a missing or damaged
database is then a lost one, not a fresh one.

For one thread at a time: the writer's, once it runs (`database_writer.py`).
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from healthd.samples.kernel_record import Cursor
from healthd.storage.history_marker import FILE, Condemnation, HistoryMarker, read_history_marker, write_history_marker
from vocabulary.atomic_file import sync_directory
from vocabulary.finding import Finding
from vocabulary.messages.wire import FindingChange, Gpu

CHANGES_MAX = 50_000
FINDINGS_KEPT = 10_000
PRUNE_EVERY_COMMITS = 256
PRUNED_MAX = 2 * PRUNE_EVERY_COMMITS  # at once: more than comes in between, and no pause that delays kernel lines

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

_log = logging.getLogger("healthd")


class DatabaseFull(Exception):
    """Nothing can be written now: the disk is full or failing. Keep the data and retry."""


class DatabaseCorrupt(Exception):
    """The file is not a usable database. It must be moved aside, and the node tested again."""


class CommitResult(msgspec.Struct, frozen=True):
    """What one commit added: the findings' changes, and how many older ones of the same findings they replace.

    `pruned`: changes were dropped, too.
    """

    changes: tuple[FindingChange, ...]
    replaced: int
    pruned: bool


class NodeDatabase:
    """The node's database. One that cannot be read is replaced by a fresh one, and `problem` describes why.

    `dropped` counts the changes given up for lack of room since it was opened.

    Raises:
        DatabaseFull: it can be neither opened nor made.
    """

    def __init__(self, path: Path, now: float) -> None:
        self.path = path
        self._mark_path = path.with_name(FILE)
        self._mark = HistoryMarker()
        self._encoder = msgspec.json.Encoder()
        self._commits = 0
        self._lifted = False  # in the current transaction
        self.dropped = 0
        self.problem = ""
        self.connection = sqlite3.connect(":memory:")  # until there is a file
        try:
            self._open(now)
        except DatabaseCorrupt as error:
            self.renew(now, str(error))

    def renew(self, now: float, problem: str) -> None:
        """Continue with a fresh file. The unusable one is moved aside, never deleted; `problem` says where and why.

        The fresh file holds the problem until a commit stores the finding about it.

        Raises:
            DatabaseFull: no fresh file can be made.
        """
        self.connection.close()
        aside = self.path.with_name(f"{self.path.name}.corrupt-{int(now)}")
        try:
            moved = [self._move(suffix, aside) for suffix in ("", "-wal", "-shm")]
        except OSError as error:
            raise DatabaseFull(
                f"{self.path}: {error.strerror}; make the directory writable, or check the disk"
            ) from error
        self._create(now, f"{problem}; moved to {aside}" if any(moved) else problem)
        self._open(now)

    def _move(self, suffix: str, aside: Path) -> bool:
        with contextlib.suppress(FileNotFoundError):
            Path(f"{self.path}{suffix}").rename(f"{aside}{suffix}")
            return True
        return False

    def commit(
        self, findings: Sequence[Finding], cursor: Cursor | None = None, *, lift_condemned: bool = False
    ) -> CommitResult:
        """Store findings as they are now, each as a new change, and move the cursor with them.

        Raises:
            DatabaseFull, DatabaseCorrupt: nothing of it was stored.
        """
        with self.transaction():
            stored = [self._store(finding) for finding in findings]
            if cursor is not None:
                self.put("cursor", cursor)
            if lift_condemned:
                self._lift()
            if self.problem:  # these findings report the problem
                self._delete("problem")
            self._commits += 1
            pruned = self._commits % PRUNE_EVERY_COMMITS == 0 and self._prune()
        changes = tuple(FindingChange(seq, finding) for finding, (seq, _) in zip(findings, stored, strict=True))
        return CommitResult(changes, sum(replaced for _, replaced in stored), pruned)

    def active(self) -> list[Finding]:
        """Return all active findings, oldest first."""
        rows = self.rows("select body from findings where active = 1 order by last_seen")
        return [self._decode(body, Finding) for (body,) in rows]

    def changes(self, limit: int) -> list[FindingChange]:
        """Return the oldest changes the controller has not acknowledged."""
        rows = self.rows("select seq, body from changes order by seq limit ?", limit)
        return [FindingChange(seq, self._decode(body, Finding)) for seq, body in rows]

    def acknowledge(self, seq: int) -> None:
        """Delete every change up to `seq`, which the controller has durably stored."""
        with self.transaction():
            self.connection.execute("delete from changes where seq <= ?", (seq,))

    def set_aside(self, seq: int) -> None:
        """Drop a change that the controller rejects for good; the finding stays as it is."""
        with self.transaction():
            self.connection.execute("delete from changes where seq = ?", (seq,))

    def waiting(self) -> int:
        """Return how many changes the controller has not acknowledged."""
        return int(self.rows("select count(*) from changes")[0][0])

    def cursor(self) -> Cursor | None:
        """Return how far the kernel log has been read."""
        return self.get("cursor", Cursor)

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs this node is expected to have."""
        return self.get("gpus", tuple[Gpu, ...]) or ()

    def expect_gpus(self, gpus: Sequence[Gpu]) -> None:
        """Set the expected GPUs."""
        with self.transaction():
            self.put("gpus", tuple(gpus))

    def condemned(self) -> Condemnation | None:
        """Whether, and by what, this node is condemned."""
        return self.get("condemned", Condemnation)

    def condemn(self, condemned: Condemnation) -> None:
        """Condemn this node, within the caller's transaction. The marker file comes first: a crash in between condemns.

        Raises:
            DatabaseFull: it could not be marked.
        """
        self._write_mark(condemned)
        self.put("condemned", condemned)

    def get(self, key: str, kind: type[T]) -> T | None:
        """Return one small value by name; None if it was never stored."""
        rows = self.rows("select value from meta where key = ?", key)
        return self._decode(rows[0][0], kind) if rows else None

    def put(self, key: str, value: object) -> None:
        """Store one small value, within the caller's transaction."""
        self.connection.execute("insert or replace into meta values (?, ?)", (key, self._encoder.encode(value)))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, durable at its end; nested, part of the outer transaction.

        Raises:
            DatabaseFull, DatabaseCorrupt: nothing of it was stored.
        """
        if self.connection.in_transaction:
            yield
            return
        self._lifted = False
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
        if self._lifted:
            self._unmark()

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query.

        Raises:
            DatabaseFull, DatabaseCorrupt: it cannot be read.
        """
        try:
            return self.connection.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._translated(error) from error

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def _open(self, now: float) -> None:
        try:
            mark = read_history_marker(self._mark_path)
            self._find_database(mark, now)
        except OSError as error:
            raise DatabaseFull(f"{error.filename}: {error.strerror}; check the state directory's disk") from error
        try:
            self.connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            self.connection.execute("pragma journal_mode=wal")
            self.connection.execute("pragma synchronous=full")
            self.connection.execute("pragma cache_size=-512")
            with self.transaction():
                self._prepare(now)
                self.problem = self.get("problem", str) or ""
                self._settle_condemned(mark)
        except sqlite3.DatabaseError as error:
            raise self._translated(error) from error
        self._mark = mark if mark is not None and mark.since else HistoryMarker(since=now)
        if mark != self._mark or mark.condemned != self.condemned():
            self._write_mark(self.condemned())

    def _find_database(self, mark: HistoryMarker | None, now: float) -> None:
        """Create the database on a fresh node. One that should exist and is missing or empty is lost."""
        if self.path.exists():
            if self.path.stat().st_size == 0:
                raise DatabaseCorrupt(f"{self.path}: the database is empty; it was truncated by a power cut or a copy")
        elif mark is not None or Path(f"{self.path}-wal").exists():
            raise DatabaseCorrupt(f"{self.path}: the database is missing, although this node had one")
        else:
            self._create(now, "")

    def _create(self, now: float, problem: str) -> None:
        """Create a complete database under another name, then rename it."""
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            for suffix in ("", "-journal"):
                Path(f"{new}{suffix}").unlink(missing_ok=True)
            self.connection = sqlite3.connect(new, isolation_level=None)
            with self.transaction():
                self._prepare(now)
                if problem:
                    self.put("problem", problem)
            self.connection.close()
            new.replace(self.path)
            sync_directory(self.path.parent)
        except sqlite3.DatabaseError as error:
            raise self._translated(error) from error
        except OSError as error:
            raise DatabaseFull(f"{self.path}: {error.strerror}; check the state directory's disk") from error

    def _prepare(self, now: float) -> None:
        (verdict,) = self.connection.execute("pragma quick_check(1)").fetchone()
        if verdict != "ok":
            raise DatabaseCorrupt(f"{self.path}: {verdict}")
        for statement in _SCHEMA.split(";"):
            self.connection.execute(statement)
        # A new file starts above every number that an earlier one can have reached: the controller may remember those.
        self.connection.execute(
            "insert into sqlite_sequence (name, seq) select 'changes', ?"
            " where not exists (select 1 from sqlite_sequence where name = 'changes')",
            (int(now * 1000),),
        )

    def _settle_condemned(self, mark: HistoryMarker | None) -> None:
        """Reconcile marker and database: if they differ, the node is condemned unless the database records the lift."""
        marked = mark.condemned if mark is not None else None
        if marked is not None and self.condemned() is None and marked != self.get("lifted", Condemnation):
            self.put("condemned", marked)

    def _lift(self) -> None:
        """Record the lift: should the marker outlive a crash here, it no longer counts."""
        condemned = self.condemned()
        if condemned is not None:
            self.put("lifted", condemned)
            self._delete("condemned")
            self._lifted = True

    def _unmark(self) -> None:
        try:
            self._write_mark(None)
        except DatabaseFull as error:  # the database overrides the marker
            _log.warning("%s", error)

    def _write_mark(self, condemned: Condemnation | None) -> None:
        mark = msgspec.structs.replace(self._mark, condemned=condemned)
        try:
            write_history_marker(self._mark_path, mark)
        except OSError as error:
            raise DatabaseFull(f"{self._mark_path}: {error.strerror}; free some space, or check the disk") from error
        self._mark = mark

    def _delete(self, key: str) -> None:
        self.connection.execute("delete from meta where key = ?", (key,))

    def _store(self, finding: Finding) -> tuple[int, bool]:
        """Store a finding; return its change's number, and whether that replaces an older one."""
        body = self._encoder.encode(finding)
        self.connection.execute(
            "insert or replace into findings values (?, ?, ?, ?)", (finding.id, finding.active, finding.last_seen, body)
        )
        replaced = self.connection.execute("delete from changes where finding = ?", (finding.id,)).rowcount > 0
        added = self.connection.execute(
            "insert into changes (finding, active, body) values (?, ?, ?)", (finding.id, finding.active, body)
        )
        return added.lastrowid or 0, replaced

    def _prune(self) -> bool:
        """Enforce the bounds; return whether changes were dropped."""
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
        return bool(changes > CHANGES_MAX)

    def _decode(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            raise DatabaseCorrupt(f"{self.path}: a stored {kind} cannot be read: {error}") from error

    def _translated(self, error: sqlite3.DatabaseError) -> Exception:
        if isinstance(error, sqlite3.OperationalError):
            return DatabaseFull(f"{self.path}: {error}; free some space, or check the disk")
        if type(error) is sqlite3.DatabaseError:  # "malformed", "not a database"
            return DatabaseCorrupt(f"{self.path}: {error}")
        return error  # a bug in healthd: do not hide it
