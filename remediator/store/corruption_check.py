"""Detects a damaged SQLite file: at the start of a term, and whenever SQLite reports it later.

The term then ends: the content of a damaged page is unknown. PostgreSQL has its own checks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Engine, ExceptionContext, event

WHAT_NOW = "the controller does not use it; restore a backup or start a new one: docs/how-to/damaged-database.md"
_SAID = ("malformed", "not a database")  # Python 3.10 does not expose SQLite's error codes


def corruption_message(file: Path | str, what: object) -> str:
    """Return an error text with the remedy."""
    return f"database {file} is damaged ({' '.join(str(what).split())}); {WHAT_NOW}"


def is_corruption(error: BaseException | None) -> bool:
    """Return whether SQLite reports a damaged file, also inside SQLAlchemy's error."""
    error = getattr(error, "orig", error)
    return type(error).__module__ == "sqlite3" and any(said in str(error) for said in _SAID)


def find_corruption(db: Connection) -> str:
    """Return the result of SQLite's quick check, which reads the whole file; empty if it is fine."""
    said = str(db.exec_driver_sql("PRAGMA quick_check(1)").scalar())
    return "" if said == "ok" else said


def watch_for_corruption(engine: Engine, file: Path, told: Callable[[str], None]) -> None:
    """Report damage that any connection finds."""

    @event.listens_for(engine, "handle_error")
    def report_corruption(context: ExceptionContext) -> None:
        if is_corruption(context.original_exception):
            told(corruption_message(file, context.original_exception))
