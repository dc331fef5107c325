"""The lock that makes one process the writer: a file beside a SQLite database, or a PostgreSQL session."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from sqlalchemy import URL, Connection, Engine, NullPool, text
from sqlalchemy.exc import SQLAlchemyError

from remediator.store.database import GONE_S, POSTGRESQL, open_engine, sqlite_file

STANDS_STILL_S = 3  # a leader without a query for so long loses its lock: it may be stopped, or its machine paused
_KEY = int.from_bytes(hashlib.sha256(b"gpu-healthd remediator").digest()[:4], "big", signed=True)


class WriterLock(Protocol):
    """Held by one process at a time. Used by one thread at a time."""

    can_be_lost: bool
    where: str

    def acquire(self) -> bool:
        """Try once. True if it is ours now, whether or not it was before. May raise the database's errors."""

    def epoch(self) -> int:
        """Return the current epoch, read through what holds the lock, so that an answer proves that it is still held."""

    def raise_epoch(self) -> int:
        """Begin a new term, through what holds the lock. Returns its epoch."""

    def release(self) -> None:
        """Release at once, without a query. Harmless when it is not ours."""

    def hand_over(self) -> None:
        """Release so that the next process can acquire it on return."""


class FileLock:
    """`flock` on a file: the kernel releases it when the process ends, and not before."""

    can_be_lost = False

    def __init__(self, engine: Engine, file: Path | None) -> None:
        self._engine = engine
        self._file = None if file is None else Path(f"{file}.lock")
        self.where = str(self._file)
        self._fd: int | None = None

    def acquire(self) -> bool:
        """See `WriterLock`."""
        if self._file is None or self._fd is not None:
            return True
        fd = os.open(self._file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def epoch(self) -> int:
        """See `WriterLock`."""
        with self._engine.connect() as db:
            return _read_epoch(db)

    def raise_epoch(self) -> int:
        """See `WriterLock`."""
        with self._engine.begin() as db:
            return _raise_epoch(db)

    def release(self) -> None:
        """See `WriterLock`."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def hand_over(self) -> None:
        """See `WriterLock`."""
        self.release()


class SessionLock:
    """PostgreSQL's advisory lock, held by a connection of its own: it ends with that session."""

    can_be_lost = True
    where = "PostgreSQL's advisory lock"

    def __init__(self, url: URL) -> None:
        # The server itself ends the session of a leader that hangs; a client's own clock may hang as well.
        mine = {
            "application_name": "gpu-healthd-leader",
            "idle_session_timeout": f"{STANDS_STILL_S}s",
            "statement_timeout": f"{GONE_S}s",
        }
        self._engine = open_engine(url, mine, poolclass=NullPool, pool_pre_ping=False, isolation_level="AUTOCOMMIT")
        self._session: Connection | None = None
        self._held = False

    def acquire(self) -> bool:
        """See `WriterLock`."""
        try:
            if self._session is None:
                self._session, self._held = self._engine.connect(), False
            if not self._held:
                # Databases of one server have separate locks; the name separates schemas of one database.
                query = text("SELECT pg_try_advisory_lock(:key, hashtext(current_schema()))")
                self._held = bool(self._session.execute(query, {"key": _KEY}).scalar_one())
        except BaseException:
            self.release()
            raise
        return self._held

    def epoch(self) -> int:
        """See `WriterLock`. Readable without the lock, too."""
        return self._ask(_read_epoch)

    def raise_epoch(self) -> int:
        """See `WriterLock`."""
        if not self._held:
            raise ConnectionError("the session that held the lock has ended")
        return self._ask(_raise_epoch)

    def release(self) -> None:
        """See `WriterLock`."""
        session, self._session, self._held = self._session, None, False
        if session is not None:
            session.invalidate()  # closes the socket without a query to a server that may be down
            session.close()

    def hand_over(self) -> None:
        """See `WriterLock`. A session that is only closed keeps its locks until the server notices."""
        if self._session is not None and self._held:
            with contextlib.suppress(SQLAlchemyError):
                self._session.execute(text("SELECT pg_advisory_unlock_all()"))
        self.release()

    def _ask(self, question: Callable[[Connection], int]) -> int:
        if self._session is None:
            raise ConnectionError("the session that held the lock has ended")
        try:
            return question(self._session)
        except BaseException:
            self.release()  # another query would make SQLAlchemy open a new session, which holds no lock
            raise


def lock_for(url: URL, engine: Engine) -> WriterLock:
    """Return the lock that belongs to a database."""
    return SessionLock(url) if url.get_backend_name() == POSTGRESQL else FileLock(engine, sqlite_file(url))


def _read_epoch(db: Connection) -> int:
    return int(db.execute(text("SELECT value FROM meta WHERE key = 'epoch'")).scalar() or 0)


def _raise_epoch(db: Connection) -> int:
    """Increase the epoch in one statement: it waits for a running commit of the earlier term, and none can follow."""
    query = text(
        "UPDATE meta SET value = CAST(CAST(value AS INTEGER) + 1 AS VARCHAR(255)) WHERE key = 'epoch' RETURNING value"
    )
    return int(db.execute(query).scalar_one())
