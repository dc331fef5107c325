"""Open the database: SQLite for one replica, PostgreSQL for several; durable, and quick to notice a peer that is gone."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    NotSupportedError,
    ProgrammingError,
    SQLAlchemyError,
    StatementError,
)

from remediator.store import corruption_check

POSTGRESQL = "postgresql"
_LIMIT_EXCEEDED = "54"  # a class of PostgreSQL's error codes: too long for an index, too many columns
GONE_S = 3  # a peer that acknowledges nothing for so long is gone
# The same from the server's side: a writer that stands still must not keep its row locks from the next leader.
_SERVER_SIDE = {
    "idle_in_transaction_session_timeout": f"{GONE_S}s",
    "tcp_keepalives_idle": "1",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": str(GONE_S),
    "tcp_user_timeout": f"{GONE_S}s",
}


class StoreError(Exception):
    """The database cannot be used: what, where, what to do."""


class LeadTakenError(StoreError):
    """Another remediator leads on it; nothing of this one's term has begun."""


def is_permanent_refusal(error: Exception) -> bool:
    """Whether this error means that the same would be refused again; else the database is away, full, locked or slow."""
    if isinstance(error, DBAPIError):
        limit = str(getattr(error.orig, "sqlstate", "") or "").startswith(_LIMIT_EXCEEDED)
        kinds = (DataError, IntegrityError, NotSupportedError, ProgrammingError)
        return not error.connection_invalidated and (limit or isinstance(error, kinds))
    # Drivers raise some errors about values as Python's own.
    return isinstance(error, StatementError) or not isinstance(error, SQLAlchemyError | OSError)


def driver_message(error: Exception) -> str:
    """What the driver says, on one line, without the statement and SQLAlchemy's link."""
    said = error.orig if isinstance(error, StatementError) and error.orig is not None else error
    return " ".join(str(said).split())


def unusable_database_error(url: URL, error: Exception) -> StoreError:
    """Why a database cannot be used, and what to do about it."""
    file = sqlite_file(url)
    if isinstance(error, StoreError) or file is None:
        todo = "" if isinstance(error, StoreError) else "; check that it is there and that we may use it"
        return StoreError(f"database {url}: {driver_message(error)}{todo}")
    if corruption_check.is_corruption(error):
        return StoreError(corruption_check.corruption_message(file, driver_message(error)))
    place, user = file.absolute().parent, f"the user that runs the remediator (now user id {os.geteuid()})"
    if not place.is_dir():
        why = f"there is no directory {place}; make it, for {user} to write in"
    elif not os.access(place, os.W_OK | os.X_OK) or (file.exists() and not os.access(file, os.R_OK | os.W_OK)):
        why = f"{driver_message(error)}; {place} and what is in it must belong to {user}"
    else:
        why = f"{driver_message(error)}; check that it is a database, and ours"
    return StoreError(f"database {url}: {why}")


def parse_database_url(text: str) -> URL:
    """The URL of a database, its driver filled in.

    Raises:
        StoreError: it is none, or names a database that is neither SQLite nor PostgreSQL.
    """
    try:
        url = make_url(text)
    except Exception as error:
        raise StoreError(
            f"'database' is no URL ({error}); write sqlite:////PATH or postgresql://USER@HOST/NAME"
        ) from error
    if url.drivername not in {"sqlite", "sqlite+pysqlite", POSTGRESQL, "postgresql+psycopg"}:
        raise StoreError(f"database {url}: only sqlite:// and postgresql:// are known")
    return url.set(drivername="postgresql+psycopg") if url.drivername == POSTGRESQL else url


def sqlite_file(url: URL) -> Path | None:
    """The file of a SQLite database; None for one in memory, and for PostgreSQL."""
    if url.get_backend_name() != "sqlite" or url.database in {None, "", ":memory:"}:
        return None
    return Path(str(url.database))


def open_engine(url: URL, settings: dict[str, str] | None = None, **more: Any) -> Engine:
    """Connections to the database, made when they are needed. `settings` are PostgreSQL's, for each session."""
    if url.get_backend_name() == POSTGRESQL:
        return create_engine(
            url, connect_args=_postgresql_arguments(url, settings or {}), **{"pool_pre_ping": True} | more
        )
    engine = create_engine(url, **more)
    file = sqlite_file(url)

    @event.listens_for(engine, "do_connect")
    def private(*_: object) -> None:
        # SQLite would make it as the umask has it; who reads it learns who works on what
        if file is not None:
            with contextlib.suppress(OSError):
                os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    @event.listens_for(engine, "connect")
    def durable(connection: Any, _record: object) -> None:
        # auto_vacuum counts only in a file that is empty yet; freed pages can then be given back bit by bit
        for pragma in (
            "auto_vacuum=INCREMENTAL",
            "journal_mode=WAL",
            "synchronous=FULL",
            "busy_timeout=10000",
            "foreign_keys=ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    return engine


def _postgresql_arguments(url: URL, settings: dict[str, str]) -> dict[str, Any]:
    """What the driver is told; what the URL itself says goes first, and of its `options` only what it names: the last word counts."""
    ours = [f"-c {name}={value}" for name, value in (_SERVER_SIDE | settings).items()]
    options = " ".join([*ours, *url.normalized_query.get("options", ())])
    wanted = {
        "connect_timeout": GONE_S,
        "keepalives": 1,
        "keepalives_idle": 1,
        "keepalives_interval": 1,
        "keepalives_count": GONE_S,
        "tcp_user_timeout": GONE_S * 1000,
        "options": options,
    }
    return {name: value for name, value in wanted.items() if name == "options" or name not in url.query}
