"""The centre's database: SQLite on a small disk of its own, or a private PostgreSQL, with a standby if it will fail over. Exports it by plain SQL at the end."""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy.engine import make_url

from tests import postgresql

TABLES = {
    "nodes": "id",
    "findings": "id",
    "incidents": "id",
    "decisions": "id",
    "actions": "id",
    "audit": "seq",
    "audit_anchors": "through",
    "deliveries": "id",
    "meta": "key",
    "set_aside": "seq",
}


class Database(Protocol):
    """Where it is, and what it holds."""

    url: str

    def rows(self, table: str, order: str) -> list[dict[str, Any]]:
        """A table's rows, bodies as bytes."""


class Sqlite:
    """One file. `copy` and `put_copy_in_place` are for disasters, while the centre is down."""

    def __init__(self, place: Path) -> None:
        self.file = place / "centre" / "r.db"
        self.url = f"sqlite:///{self.file}"
        self._copy, self._aside = place / "copy.db", place / "damaged"

    def copy(self) -> None:
        """As the document on backups has it; what was in the file's companions is in the file then."""
        with closing(sqlite3.connect(self.file)) as source, closing(sqlite3.connect(self._copy)) as target:
            source.backup(target)

    def put_copy_in_place(self) -> None:
        """As the document on a damaged database has it."""
        self._aside.mkdir(exist_ok=True)
        for each in self.file.parent.glob(f"{self.file.name}*"):
            shutil.move(each, self._aside / each.name)
        shutil.copyfile(self._copy, self.file)

    def rows(self, table: str, order: str) -> list[dict[str, Any]]:
        """Rows of the file as it is."""
        connection = sqlite3.connect(self.file)
        connection.row_factory = sqlite3.Row
        found = connection.execute(f"SELECT * FROM {table} ORDER BY {order}").fetchall()  # noqa: S608 - constants
        connection.close()
        return [dict(row) for row in found]


class Postgresql:
    """One server, or two: then nothing is acknowledged that the standby has not got. The methods are for disasters."""

    def __init__(self, place: Path, *, standby: bool) -> None:
        self._serving = postgresql.Cluster(place / "pg")
        self._serving.start()
        self.url = self._serving.database()
        self._name = str(make_url(self.url).database)
        self._standby: postgresql.Cluster | None = None
        if standby:
            self._standby = postgresql.Cluster(place / "pg-standby", standby_of=self._serving)
            self._standby.start()
            self._serving.wait_for_standby()
            self.url += f"&host={self._standby.place}&target_session_attrs=read-write"

    def crash(self) -> None:
        """It is gone from one moment to the next."""
        self._serving.stop("immediate")

    def start_again(self) -> None:
        """It recovers and serves."""
        self._serving.start()

    def promote_standby(self) -> None:
        """After a crash: the other one serves from now on, and the first never again."""
        assert self._standby is not None
        self._standby.promote()
        self._serving, self._standby = self._standby, None

    def rows(self, table: str, order: str) -> list[dict[str, Any]]:
        """Rows as JSON; bytes come as hexadecimal digits."""
        lines = self._serving.sql(self._name, f"SELECT row_to_json(t) FROM {table} t ORDER BY {order}")  # noqa: S608 - constants
        found = [json.loads(line) for line in lines.splitlines()]
        for row in found:
            if "body" in row:
                row["body"] = bytes.fromhex(row["body"].removeprefix("\\x"))
        return found


def export(database: Database, place: Path) -> None:
    """Every table of `TABLES`, one JSON line a row: the body as it reads, and its very bytes in base64."""
    place.mkdir(exist_ok=True)
    for table, order in TABLES.items():
        with (place / f"{table}.jsonl").open("w") as file:
            for row in database.rows(table, order):
                body = row.get("body")
                if isinstance(body, bytes):
                    row |= {"body": json.loads(body), "bytes": base64.b64encode(body).decode()}
                file.write(json.dumps(row) + "\n")
