"""What `remediator audit`, `export` and `compact` do: look after the database, beside the centre or while it is stopped."""

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
from remediator.store import audit
from remediator.store.database import POSTGRESQL, unusable
from remediator.store.export import exported
from remediator.store.journal import Journal, StoreError

_AGO = re.compile(r"(\d+)([dh])")
_UNIT_S = {"d": 86400.0, "h": 3600.0}


def moment(text: str, now: float) -> float:
    """`7d` and `12h` ago, or a date or time in ISO 8601 (UTC unless it says otherwise), as UTC seconds.

    Raises:
        ValueError: it is neither.
    """
    if match := _AGO.fullmatch(text):
        return now - int(match[1]) * _UNIT_S[match[2]]
    try:
        found = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"{text!r} is no time; write 7d, 12h, 2026-11-01 or 2026-11-01T08:00:00") from None
    return (found if found.tzinfo else found.replace(tzinfo=dt.timezone.utc)).timestamp()


def verify(config: Config) -> audit.Checked:
    """Walk along the audit log.

    Raises:
        StoreError: there is no such database, or its schema is not the one this program knows.
    """
    with _opened(config) as journal, journal.engine.connect() as db:
        return audit.verify(db)


def export(config: Config, since: float, out: BinaryIO) -> int:
    """Write every record since then. Returns how many.

    Raises:
        StoreError: there is no such database, or its schema is not the one this program knows.
    """
    with _opened(config) as journal:
        count = 0
        for line in exported(journal.engine, since):
            out.write(line)
            count += 1
    return count


def export_file(config: Config, since: float, file: Path) -> int:
    """The same into a file, which is there whole or not at all.

    Raises:
        StoreError: as above. OSError: it cannot be written.
    """
    aside = file.with_name(f"{file.name}.part")
    try:
        with aside.open("wb") as out:
            count = export(config, since, out)
            out.flush()
            os.fsync(out.fileno())
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)
    return count


def compact(config: Config) -> str:
    """Give unused space back, while no remediator is at work on SQLite. Returns what was done.

    Raises:
        StoreError: a remediator is at work, or there is no such database.
    """
    with _opened(config) as journal:
        if journal.alone and not journal.leadership.campaign():
            raise StoreError(journal.taken())
        with journal.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
            if journal.url.get_backend_name() != POSTGRESQL:
                db.exec_driver_sql("PRAGMA auto_vacuum=INCREMENTAL")
            db.exec_driver_sql("VACUUM")
    return f"compacted {journal.url}"


@contextlib.contextmanager
def _opened(config: Config) -> Iterator[Journal]:
    journal = Journal(config.database, create=False)
    with contextlib.closing(journal):
        try:
            journal.prepare()
            yield journal
        except SQLAlchemyError as error:
            raise unusable(journal.url, error) from error
