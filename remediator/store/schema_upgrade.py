"""Upgrades a database to the schema this program needs; refuses one that a newer program wrote."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from remediator.store import table_schema
from remediator.store.database import StoreError

log = logging.getLogger(__name__)
# Version written to `meta` before there were migrations.
_UNSTAMPED = {"1": "0001", "2": "0002"}
_KEY = int.from_bytes(hashlib.sha256(b"gpu-healthd upgrade").digest()[:8], "big", signed=True)


def is_current(db: Connection) -> bool:
    """Return whether the schema is the one this program needs; False if it is older, or missing.

    Raises:
        StoreError: the schema is unknown to this program.
    """
    return _schema_revision(db) == table_schema.REVISION


def upgrade_schema(db: Connection) -> None:
    """Run the missing migrations within the transaction of `db`, all or none.

    Concurrent attempts run one after the other, whoever leads by then.

    Raises:
        StoreError: the schema is unknown to this program.
    """
    if db.dialect.name == "sqlite":
        db.exec_driver_sql("BEGIN IMMEDIATE")  # Python's driver begins no transaction for DDL
    elif not is_current(db):
        db.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _KEY})
    found = _schema_revision(db)
    if found == table_schema.REVISION:
        return
    config = _alembic_config(db)
    if found is not None and not _table_names(db) & {"alembic_version"}:
        command.stamp(config, found)
    log.info("upgrading the database from schema %s to %s", found or "none", table_schema.REVISION)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # the line above says it
    command.upgrade(config, "head")


def migration_scripts() -> ScriptDirectory:
    """Return the migrations, for tests that compare them with the tables."""
    return ScriptDirectory.from_config(_alembic_config(None))


def _schema_revision(db: Connection) -> str | None:
    tables = _table_names(db)
    if "alembic_version" in tables:
        found = db.execute(text("SELECT version_num FROM alembic_version")).scalar()
        if found is not None and found > table_schema.REVISION:
            raise StoreError(_newer_schema_message(found))
        return found
    if "meta" not in tables:
        return None
    version = db.execute(text("SELECT value FROM meta WHERE key = 'schema'")).scalar()
    if version is None:
        raise StoreError("it has a table 'meta' of another program; give the controller its own database")
    if version not in _UNSTAMPED:
        raise StoreError(_newer_schema_message(version))
    return _UNSTAMPED[version]


def _newer_schema_message(found: str) -> str:
    return (
        f"its schema is version {found}, but this program supports up to {table_schema.REVISION}: a newer release wrote it; "
        "upgrade this program, or restore the backup made before the upgrade"
    )


def _table_names(db: Connection) -> set[str]:
    return set(inspect(db).get_table_names())


def _alembic_config(db: Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.attributes["connection"] = db
    return config
