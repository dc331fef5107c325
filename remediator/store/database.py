"""Opens the database: SQLite for one replica, PostgreSQL for several; durable, and quick to notice a lost peer."""

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
_LIMIT_EXCEEDED = "54"  # a class of PostgreSQL error codes: too long for an index, too many columns
GONE_S = 3  # a peer without acknowledgements for so long is lost
# The same on the server: a writer that hangs must not keep its row locks from the next leader.
_SERVER_SIDE = {
    "idle_in_transaction_session_timeout": f"{GONE_S}s",
    "tcp_keepalives_idle": "1",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": str(GONE_S),
    "tcp_user_timeout": f"{GONE_S}s",
}


class StoreError(Exception):
    """The database cannot be used: what, where, and the remedy."""


class LeadTakenError(StoreError):
    """Another remediator leads on it; this one's term has not begun."""


def is_permanent_refusal(error: Exception) -> bool:
    """Return whether a retry would be refused again; otherwise the database is down, full, locked or slow."""
    if isinstance(error, DBAPIError):
        limit = str(getattr(error.orig, "sqlstate", "") or "").startswith(_LIMIT_EXCEEDED)
        kinds = (DataError, IntegrityError, NotSupportedError, ProgrammingError)
        return not error.connection_invalidated and (limit or isinstance(error, kinds))
    # Drivers raise some errors about values as Python's own.
    return isinstance(error, StatementError) or not isinstance(error, SQLAlchemyError | OSError)


def driver_message(error: Exception) -> str:
    """Return the driver's message, on one line, without the statement and SQLAlchemy's link."""
    said = error.orig if isinstance(error, StatementError) and error.orig is not None else error
    return " ".join(str(said).split())


def unusable_database_error(url: URL, error: Exception) -> StoreError:
    """Explain why a database cannot be used, with the remedy."""
    file = sqlite_file(url)
    if isinstance(error, StoreError) or file is None:
        todo = "" if isinstance(error, StoreError) else "; check that it exists and that the controller may use it"
        return StoreError(f"database {url}: {driver_message(error)}{todo}")
    if corruption_check.is_corruption(error):
        return StoreError(corruption_check.corruption_message(file, driver_message(error)))
    place, user = file.absolute().parent, f"the user that runs the remediator (now user id {os.geteuid()})"
    if not place.is_dir():
        why = f"directory {place} does not exist; create it, writable for {user}"
    elif not os.access(place, os.W_OK | os.X_OK) or (file.exists() and not os.access(file, os.R_OK | os.W_OK)):
        why = f"{driver_message(error)}; {place} and its files must belong to {user}"
    else:
        why = f"{driver_message(error)}; check that it is a database of this controller"
    return StoreError(f"database {url}: {why}")


def parse_database_url(text: str) -> URL:
    """Parse the URL of a database and fill in its driver.

    Raises:
        StoreError: it is invalid, or names a database other than SQLite and PostgreSQL.
    """
    try:
        url = make_url(text)
    except Exception as error:
        raise StoreError(
            f"'database' is not a URL ({error}); write sqlite:////PATH or postgresql://USER@HOST/NAME"
        ) from error
    if url.drivername not in {"sqlite", "sqlite+pysqlite", POSTGRESQL, "postgresql+psycopg"}:
        raise StoreError(f"database {url}: only sqlite:// and postgresql:// are supported")
    return url.set(drivername="postgresql+psycopg") if url.drivername == POSTGRESQL else url


def sqlite_file(url: URL) -> Path | None:
    """Return the file of a SQLite database; None for one in memory, and for PostgreSQL."""
    if url.get_backend_name() != "sqlite" or url.database in {None, "", ":memory:"}:
        return None
    return Path(str(url.database))


def open_engine(url: URL, settings: dict[str, str] | None = None, **more: Any) -> Engine:
    """Create the engine, whose connections open on demand. `settings` are PostgreSQL's, for each session."""
    if url.get_backend_name() == POSTGRESQL:
        return create_engine(
            url, connect_args=_postgresql_arguments(url, settings or {}), **{"pool_pre_ping": True} | more
        )
    engine = create_engine(url, **more)
    file = sqlite_file(url)

    @event.listens_for(engine, "do_connect")
    def private(*_: object) -> None:
        # SQLite would create it by the umask, readable for others, who would see who works on what
        if file is not None:
            with contextlib.suppress(OSError):
                os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    @event.listens_for(engine, "connect")
    def durable(connection: Any, _record: object) -> None:
        # auto_vacuum takes effect only in an empty file; freed pages can then be released in steps
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
    """Return the driver's arguments.

    The URL's own go first, and of its `options` those that it names: the last value counts.
    """
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
