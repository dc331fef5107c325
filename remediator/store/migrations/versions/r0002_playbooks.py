"""Occurrences and evidence; the records in the words that playbooks use since then (drain → cordon, wait_drained → drain)."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from alembic import op

from remediator.store.migrations.stored_bodies import Document, rewrite

revision = "0002"
down_revision = "0001"

_Serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_WORDS = {"drain": "cordon", "wait_drained": "drain"}


def upgrade() -> None:
    """Make the two tables, and rewrite what version 1 stored."""
    op.create_table(
        "occurrences",
        sa.Column("seq", _Serial, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Float, nullable=False, index=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "evidence",
        sa.Column("order", sa.String(512), primary_key=True),
        sa.Column("incident", sa.String(64), nullable=False, index=True),
        sa.Column("node", sa.String(255), nullable=False),
        sa.Column("at", sa.Float, nullable=False, index=True),
        sa.Column("bytes", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    db = op.get_bind()
    isolated: list[Document] = []
    rewrite(db, "nodes", _text("id"), lambda node: _node(node, isolated))
    rewrite(db, "incidents", _text("id"), _incident)
    rewrite(db, "actions", _text("id"), _action)
    rewrite(db, "inputs", sa.Column("seq", _Serial, primary_key=True), _input)
    _remember(db, isolated)
    db.execute(sa.text("UPDATE meta SET value = '2' WHERE key = 'schema'"))


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.String, primary_key=True)


def _node(node: Document, isolated: list[Document]) -> Document | None:
    """`held_since` became the time of the last isolation, which the budget counts from the occurrences."""
    old = node.pop("held_since", None)
    at = node.get("isolated_at") or old
    if at is None:
        return None
    isolated.append({"at": at, "kind": "node/isolated", "node": node["node"]})
    return node | {"isolated_at": at}


def _remember(db: sa.Connection, isolated: list[Document]) -> None:
    table = sa.table("occurrences", sa.column("at", sa.Float), sa.column("body", sa.LargeBinary))
    rows = [{"at": each["at"], "body": msgspec.json.encode(each)} for each in isolated]
    if rows:
        db.execute(table.insert(), rows)


def _incident(incident: Document) -> Document | None:
    if "plan" not in incident:
        return None
    plan = [[run | {"step": _step(run["step"])} for run in stage] for stage in incident["plan"]]
    return incident | {"plan": plan}


def _step(step: Document) -> Document:
    other: Any = step.get("on_failure")
    new = step | {"verb": _WORDS.get(step["verb"], step["verb"])}
    return new | {"on_failure": [_step(other)]} if other else new


def _action(action: Document) -> Document | None:
    return action | {"verb": "cordon"} if action["verb"] == "drain" else None


def _input(item: Document) -> Document | None:
    """Within version 1, jobs at first had no attempts."""
    if item["input"] != "placement":
        return None
    jobs = [{"job": job, "attempt": 0} if isinstance(job, str) else job for job in item["jobs"]]
    return item | {"jobs": jobs}
