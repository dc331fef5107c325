"""The lock that makes one process the writer: a file beside a SQLite database, a session of PostgreSQL."""

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

STANDS_STILL_S = 3  # a leader that asks nothing for so long loses its lock: it may be stopped, or its machine paused
_KEY = int.from_bytes(hashlib.sha256(b"gpu-healthd remediator").digest()[:4], "big", signed=True)


class WriterLock(Protocol):
    """One process at a time has it. Used by one thread at a time."""

    can_be_lost: bool
    where: str

    def acquire(self) -> bool:
        """Try once. True: it is ours now, whether or not it was before. May raise what the database raises."""
        ...

    def epoch(self) -> int:
        """The current epoch, read over whatever keeps the lock, so that an answer proves that it is still kept."""
        ...

    def raise_epoch(self) -> int:
        """Begin a new term, over whatever keeps the lock. Returns its epoch."""
        ...

    def release(self) -> None:
        """Let go, at once and without asking anybody. Harmless when it is not ours."""
        ...

    def hand_over(self) -> None:
        """Let go in such a way that the next one can have it when this returns."""
        ...


class FileLock:
    """`flock` on a file: the kernel lets go of it the moment the process ends, and not before."""

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
    """PostgreSQL's advisory lock, kept by a connection of its own: it goes when that session does."""

    can_be_lost = True
    where = "PostgreSQL's advisory lock"

    def __init__(self, url: URL) -> None:
        # The server itself ends the session of a leader that stands still; a client's own clock may stand still as well.
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
                # Two databases in one server have locks of their own; two schemas in one database get them by their name.
                query = text("SELECT pg_try_advisory_lock(:key, hashtext(current_schema()))")
                self._held = bool(self._session.execute(query, {"key": _KEY}).scalar_one())
        except BaseException:
            self.release()
            raise
        return self._held

    def epoch(self) -> int:
        """See `WriterLock`. Without the lock it is read all the same."""
        return self._ask(_read_epoch)

    def raise_epoch(self) -> int:
        """See `WriterLock`."""
        if not self._held:
            raise ConnectionError("the session that kept the lead is gone")
        return self._ask(_raise_epoch)

    def release(self) -> None:
        """See `WriterLock`."""
        session, self._session, self._held = self._session, None, False
        if session is not None:
            session.invalidate()  # closes the socket without asking a server that may be gone
            session.close()

    def hand_over(self) -> None:
        """See `WriterLock`. A session that is only closed keeps its locks until the server has noticed."""
        if self._session is not None and self._held:
            with contextlib.suppress(SQLAlchemyError):
                self._session.execute(text("SELECT pg_advisory_unlock_all()"))
        self.release()

    def _ask(self, question: Callable[[Connection], int]) -> int:
        if self._session is None:
            raise ConnectionError("the session that kept the lead is gone")
        try:
            return question(self._session)
        except BaseException:
            self.release()  # asked again, SQLAlchemy would quietly open another session, which keeps no lock
            raise


def lock_for(url: URL, engine: Engine) -> WriterLock:
    """The lock that belongs to a database."""
    return SessionLock(url) if url.get_backend_name() == POSTGRESQL else FileLock(engine, sqlite_file(url))


def _read_epoch(db: Connection) -> int:
    return int(db.execute(text("SELECT value FROM meta WHERE key = 'epoch'")).scalar() or 0)


def _raise_epoch(db: Connection) -> int:
    """One statement: it waits for a commit of the term before that is under way, and no commit of it can follow."""
    query = text(
        "UPDATE meta SET value = CAST(CAST(value AS INTEGER) + 1 AS VARCHAR(255)) WHERE key = 'epoch' RETURNING value"
    )
    return int(db.execute(query).scalar_one())
