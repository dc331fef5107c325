"""The database of a run: a file, or a PostgreSQL of its own; the tokens of the fleet before, what is stored after."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import func, insert, select

from bench.fleet.accounts import Key, Stored
from bench.fleet.options import Options, node_name, slow_name, token_of
from remediator.store import table_schema
from remediator.store.journal import Journal
from tests import postgresql

KINDS = ("sqlite", "postgresql")
AT_ONCE = 1000


@contextlib.contextmanager
def run_database(kind: str, place: Path) -> Iterator[str]:
    """Its URL, while it runs. PostgreSQL writes to the disk before it answers, as in life."""
    if kind == "sqlite":
        yield f"sqlite:///{place}/r.db"
        return
    if why := postgresql.why_not():
        raise SystemExit(f"no PostgreSQL here: {why}")
    place.chmod(0o755)
    with postgresql.running(place / "pg", durable=True) as cluster:
        yield cluster.database()


def prepare_database(url: str, options: Options) -> None:
    """The schema, and a token for every node."""
    names = [node_name(n) for n in range(options.nodes)]
    names += [slow_name(n) for n in range(max(options.slow, options.malformed))]
    rows = [
        {
            "digest": hashlib.sha256(token_of(name).encode()).hexdigest(),
            "role": "node",
            "name": name,
            "issued_at": 0.0,
            "issued_by": "",
            "replaces": False,
        }
        for name in names
    ]
    journal = Journal(url)
    with contextlib.closing(journal):
        journal.prepare()
        with journal.engine.begin() as db:
            for begin in range(0, len(rows), AT_ONCE):
                db.execute(insert(table_schema.tokens), rows[begin : begin + AT_ONCE])


def read_stored_findings(url: str) -> tuple[dict[str, Stored], dict[Key, int]]:
    """Findings by id, and how often each was counted as having happened, by node, kind and component."""
    journal = Journal(url, create=False)
    found, happened = table_schema.findings.c, table_schema.occurrences.c
    which = (happened.node, happened.kind, happened.component)
    with contextlib.closing(journal), journal.engine.connect() as db:
        findings = db.execute(select(found.id, found.node, found.kind, found.active)).all()
        counts = db.execute(select(*which, func.sum(happened["count"])).group_by(*which)).all()
    return (
        {name: Stored(node, kind, bool(active)) for name, node, kind, active in findings},
        {Key(node, kind, component): int(count) for node, kind, component, count in counts},
    )


def count_decided_incidents(url: str) -> int:
    """Incidents with a decision."""
    journal = Journal(url, create=False)
    with contextlib.closing(journal), journal.engine.connect() as db:
        return int(db.execute(select(func.count(func.distinct(table_schema.decisions.c.incident)))).scalar_one())
