"""The first schema: what the controller stored when it first ran."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_Serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the tables of version 1."""
    meta = op.create_table(
        "meta", sa.Column("key", sa.String(64), primary_key=True), sa.Column("value", sa.String(255), nullable=False)
    )
    op.bulk_insert(meta, [{"key": "schema", "value": "1"}])
    op.create_table(
        "tokens",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("issued_at", sa.Float, nullable=False),
        sa.Column("revoked_at", sa.Float),
    )
    op.create_table("nodes", sa.Column("id", sa.String(255), primary_key=True), _body())
    op.create_table(
        "findings",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("node", sa.String(255), nullable=False),
        sa.Column("active", sa.Boolean, nullable=False, index=True),
        sa.Column("last_seen", sa.Float, nullable=False),
        _body(),
    )
    op.create_index("findings_by_node", "findings", ["node", "active"])
    op.create_table(
        "incidents",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("node", sa.String(255), nullable=False, index=True),
        sa.Column("closed", sa.Boolean, nullable=False, index=True),
        sa.Column("opened_at", sa.Float, nullable=False, index=True),
        _body(),
    )
    _about_incidents()


def _about_incidents() -> None:
    op.create_table(
        "decisions",
        sa.Column("id", sa.String(96), primary_key=True),
        sa.Column("incident", sa.String(64), nullable=False, index=True),
        sa.Column("at", sa.Float, nullable=False),
        _body(),
    )
    op.create_table(
        "actions",
        sa.Column("id", sa.String(512), primary_key=True),
        sa.Column("incident", sa.String(64), nullable=False, index=True),
        sa.Column("final", sa.Boolean, nullable=False, index=True),
        _body(),
    )
    op.create_table(
        "inputs",
        sa.Column("seq", _Serial, primary_key=True, autoincrement=True),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        _body(),
    )
    op.create_table(
        "audit",
        sa.Column("seq", _Serial, primary_key=True, autoincrement=True),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("node", sa.String(255), nullable=False),
        sa.Column("incident", sa.String(64), nullable=False, index=True),
        _body(),
    )


def _body() -> sa.Column[bytes]:
    return sa.Column("body", sa.LargeBinary, nullable=False)
