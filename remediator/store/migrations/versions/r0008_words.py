"""Whose word settled a finding, and when, stands with the finding: a fatal fault that is seen later is decided afresh."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

OURS = ("done", "returned to service", "its findings cleared")  # how incidents ended that no person did
AT_ONCE = 1000
_FILL = sa.text("UPDATE findings SET settled_word = :word, settled_at = :at WHERE settled_by = :incident")


def upgrade() -> None:
    """Words said so far count from when their incident was closed."""
    op.add_column("findings", sa.Column("settled_word", sa.String(255), nullable=False, server_default=""))
    op.add_column("findings", sa.Column("settled_at", sa.Float))
    db = op.get_bind()
    closed = sa.text(
        "SELECT id, body, closed_at FROM incidents WHERE closed = :yes AND id > :after "
        "AND id IN (SELECT settled_by FROM findings WHERE settled_by <> '') ORDER BY id LIMIT :n"
    )
    after = ""
    while rows := db.execute(closed, {"yes": True, "after": after, "n": AT_ONCE}).all():
        after = rows[-1].id
        words = [
            {"incident": row.id, "word": "a person closed it", "at": row.closed_at}
            for row in rows
            if json.loads(row.body).get("outcome", "") not in ("", *OURS)
        ]
        if words:
            db.execute(_FILL, words)
    db.execute(sa.text("UPDATE meta SET value = '0008' WHERE key = 'schema'"))
