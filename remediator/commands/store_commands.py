"""Commands on the database, beside a running controller or while it is stopped: audit, export, compact."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sqlalchemy.exc import SQLAlchemyError

from remediator.config import Config
from remediator.store import audit_log
from remediator.store.database import POSTGRESQL, unusable_database_error
from remediator.store.journal import Journal, StoreError
from remediator.store.json_export import export_lines

_AGO = re.compile(r"(\d+)([dh])")
_UNIT_S = {"d": 86400.0, "h": 3600.0}


def parse_since_option(text: str, now: float) -> float:
    """Parse `7d` or `12h` ago, or an ISO 8601 date or time (UTC by default), into UTC seconds.

    Raises:
        ValueError: it is neither.
    """
    if match := _AGO.fullmatch(text):
        return now - int(match[1]) * _UNIT_S[match[2]]
    try:
        found = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"{text!r} is not a time; write 7d, 12h, 2026-11-01 or 2026-11-01T08:00:00") from None
    return (found if found.tzinfo else found.replace(tzinfo=dt.timezone.utc)).timestamp()


def verify_audit_chain(config: Config) -> audit_log.ChainCheck:
    """Verify the chain of the audit log.

    Raises:
        StoreError: there is no such database, or its schema has another version.
    """
    with _open_journal(config) as journal, journal.engine.connect() as db:
        return audit_log.verify_chain(db)


def export_records(config: Config, since: float, out: BinaryIO) -> int:
    """Write every record since then. Returns how many.

    Raises:
        StoreError: there is no such database, or its schema has another version.
    """
    with _open_journal(config) as journal:
        count = 0
        for line in export_lines(journal.engine, since):
            out.write(line)
            count += 1
    return count


def export_records_to_file(config: Config, since: float, file: Path) -> int:
    """Write the same into a file, atomically.

    Raises:
        StoreError: as above.
        OSError: it cannot be written.
    """
    aside = file.with_name(f"{file.name}.part")
    try:
        with aside.open("wb") as out:
            count = export_records(config, since, out)
            out.flush()
            os.fsync(out.fileno())
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)
    return count


def compact_database(config: Config) -> str:
    """Release unused space, on SQLite only while no remediator runs. Returns what was done.

    Raises:
        StoreError: a remediator is running, or there is no such database.
    """
    with _open_journal(config) as journal:
        if journal.alone and not journal.leadership.campaign():
            raise StoreError(journal.taken())
        with journal.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
            if journal.url.get_backend_name() != POSTGRESQL:
                db.exec_driver_sql("PRAGMA auto_vacuum=INCREMENTAL")
            db.exec_driver_sql("VACUUM")
    return f"compacted {journal.url}"


@contextlib.contextmanager
def _open_journal(config: Config) -> Iterator[Journal]:
    journal = Journal(config.database, create=False)
    with contextlib.closing(journal):
        try:
            journal.prepare()
            yield journal
        except SQLAlchemyError as error:
            raise unusable_database_error(journal.url, error) from error
