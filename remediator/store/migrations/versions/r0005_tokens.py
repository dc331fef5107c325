"""Tokens: when they end, who issued them; secrets with which nodes get a token of their own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Tokens from before end never, as they did."""
    op.add_column("tokens", sa.Column("expires_at", sa.Float))
    op.add_column("tokens", sa.Column("issued_by", sa.String(255), nullable=False, server_default=""))
    op.add_column("tokens", sa.Column("uses_left", sa.Integer))
    op.add_column("tokens", sa.Column("replaces", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_index("tokens_by_name", "tokens", ["role", "name"])
