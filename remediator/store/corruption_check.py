"""A damaged SQLite file: looked for when a term begins, and noticed wherever SQLite itself comes upon it later.

Its term ends with it: what is on a damaged page is not known, and what rests on it would be a guess. PostgreSQL looks after its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Engine, ExceptionContext, event

WHAT_NOW = "nothing is decided on it; restore a copy or begin a new one: docs/how-to/damaged-database.md"
_SAID = ("malformed", "not a database")  # Python 3.10 does not tell SQLite's numbers


def corruption_message(file: Path | str, what: object) -> str:
    """That it is damaged, and what to do."""
    return f"database {file} is damaged ({' '.join(str(what).split())}); {WHAT_NOW}"


def is_corruption(error: BaseException | None) -> bool:
    """Whether SQLite says that the file is not what it wrote; SQLAlchemy's error around that is looked into."""
    error = getattr(error, "orig", error)
    return type(error).__module__ == "sqlite3" and any(said in str(error) for said in _SAID)


def find_corruption(db: Connection) -> str:
    """What is wrong with the file, by SQLite's own quick check, which reads all of it; empty if nothing is."""
    said = str(db.exec_driver_sql("PRAGMA quick_check(1)").scalar())
    return "" if said == "ok" else said


def watch_for_corruption(engine: Engine, file: Path, told: Callable[[str], None]) -> None:
    """Tell of damage that any connection comes upon, whoever had asked for what."""

    @event.listens_for(engine, "handle_error")
    def look(context: ExceptionContext) -> None:
        if is_corruption(context.original_exception):
            told(corruption_message(file, context.original_exception))
