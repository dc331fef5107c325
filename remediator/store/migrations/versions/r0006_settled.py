"""Which closed incident dealt with a finding stands with the finding; inputs that the database refused are set aside."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_Serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_SETTLE = sa.text(
    "UPDATE findings SET settled_by = :incident WHERE id = :finding AND (active = :yes OR severity = 'info')"
)
AT_ONCE = 1000


def upgrade() -> None:
    """What closed incidents dealt with stays dealt with, also once they are forgotten."""
    op.add_column("findings", sa.Column("settled_by", sa.String(64), nullable=False, server_default=""))
    op.create_table(
        "set_aside",
        sa.Column("seq", _Serial, primary_key=True, autoincrement=True),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("why", sa.String(255), nullable=False, server_default=""),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_set_aside_at", "set_aside", ["at"])
    db = op.get_bind()
    closed = sa.text("SELECT id, body FROM incidents WHERE closed = :yes AND id > :after ORDER BY id LIMIT :n")
    after = ""
    while rows := db.execute(closed, {"yes": True, "after": after, "n": AT_ONCE}).all():
        after = rows[-1].id
        settled = [{"incident": row.id, "finding": f, "yes": True} for row in rows for f in _findings(row.body)]
        if settled:
            db.execute(_SETTLE, settled)
    db.execute(sa.text("UPDATE meta SET value = '0006' WHERE key = 'schema'"))


def _findings(body: bytes) -> list[str]:
    named: list[str] = json.loads(body).get("findings", [])
    return named
