"""Open the database: SQLite for one replica, PostgreSQL for several; durable, and quick to notice a peer that is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.engine import make_url

POSTGRESQL = "postgresql"
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


def parsed(text: str) -> URL:
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


def file_of(url: URL) -> Path | None:
    """The file of a SQLite database; None for one in memory, and for PostgreSQL."""
    if url.get_backend_name() != "sqlite" or url.database in {None, "", ":memory:"}:
        return None
    return Path(str(url.database))


def open_engine(url: URL, settings: dict[str, str] | None = None, **more: Any) -> Engine:
    """Connections to the database, made when they are needed. `settings` are PostgreSQL's, for each session."""
    if url.get_backend_name() == POSTGRESQL:
        return create_engine(url, connect_args=_postgresql(url, settings or {}), **{"pool_pre_ping": True} | more)
    engine = create_engine(url, **more)

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


def _postgresql(url: URL, settings: dict[str, str]) -> dict[str, Any]:
    """What the driver is told; what the URL itself says goes first."""
    options = " ".join(f"-c {name}={value}" for name, value in (_SERVER_SIDE | settings).items())
    wanted = {
        "connect_timeout": GONE_S,
        "keepalives": 1,
        "keepalives_idle": 1,
        "keepalives_interval": 1,
        "keepalives_count": GONE_S,
        "tcp_user_timeout": GONE_S * 1000,
        "options": options,
    }
    return {name: value for name, value in wanted.items() if name not in url.query}
