"""What people said of the whole cluster stands until they say otherwise; actions are listed by time, the audit log by node."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """A table, and an index for each new list."""
    op.create_table(
        "standing",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_actions_planned_at", "actions", ["planned_at"])
    op.create_index("audit_by_node", "audit", ["node", "seq"])
    op.get_bind().execute(sa.text("UPDATE meta SET value = '0007' WHERE key = 'schema'"))
