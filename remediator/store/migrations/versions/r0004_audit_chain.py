"""The audit log: chained by hashes, only ever added to; anchors for what was cut from its beginning. The outbox of alerts."""

from __future__ import annotations

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

BATCH = 1000
GENESIS = "0" * 64
WORDS = "the audit log is only ever added to"
_Serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Chain what is there, then let the database refuse changes."""
    db = op.get_bind()
    op.add_column("audit", sa.Column("hash", sa.String(64), nullable=False, server_default=""))
    op.create_table(
        "audit_anchors",
        sa.Column("through", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("events", sa.Integer, nullable=False),
        sa.Column("first_at", sa.Float, nullable=False),
        sa.Column("last_at", sa.Float, nullable=False),
        sa.Column("cut_at", sa.Float, nullable=False),
    )
    head = _chain(db)
    meta = sa.table("meta", sa.column("key"), sa.column("value"))
    db.execute(meta.insert(), [{"key": "audit_head", "value": head}])
    if "deliveries" not in sa.inspect(db).get_table_names():  # whoever ran in between made it without a migration
        _outbox()
    for statement in _POSTGRESQL if db.dialect.name == "postgresql" else _SQLITE:
        op.execute(statement)
    db.execute(sa.text("UPDATE meta SET value = '0004' WHERE key = 'schema'"))


def _chain(db: sa.Connection) -> str:
    """Give every row its hash. Returns the head: sequence and hash of the last."""
    table = sa.table(
        "audit",
        sa.column("seq", _Serial),
        sa.column("epoch", sa.Integer),
        sa.column("body", sa.LargeBinary),
        sa.column("hash", sa.String),
    )
    update = table.update().where(table.c.seq == sa.bindparam("the_seq")).values(hash=sa.bindparam("the_hash"))
    seq, head = 0, GENESIS
    query = sa.select(table.c.seq, table.c.epoch, table.c.body).order_by(table.c.seq).limit(BATCH)
    while rows := db.execute(query.where(table.c.seq > seq)).all():
        changes = []
        for row in rows:
            seq = row.seq
            head = hashlib.sha256(f"{head}\n{seq}\n{row.epoch}\n".encode() + row.body).hexdigest()
            changes.append({"the_seq": seq, "the_hash": head})
        db.execute(update, changes)
    return f"{seq}:{head}"


def _outbox() -> None:
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(700), primary_key=True),
        sa.Column("receiver", sa.String(255), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("told", sa.Boolean, nullable=False),
        sa.Column("batch", sa.String(64), nullable=False),
        sa.Column("claimed_at", sa.Float, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("deliveries_by_receiver", "deliveries", ["receiver", "state"])


# Only what an anchor speaks of may go; the anchor itself stays.
_CUT = "OLD.seq <= (SELECT COALESCE(MAX(through), 0) FROM audit_anchors)"
_REFUSED = f"BEGIN SELECT RAISE(ABORT, '{WORDS}'); END"
_SQLITE = [
    f"CREATE TRIGGER audit_stays BEFORE UPDATE ON audit {_REFUSED}",
    f"CREATE TRIGGER audit_is_kept BEFORE DELETE ON audit WHEN NOT ({_CUT}) {_REFUSED}",
    # REPLACE deletes a row without asking the trigger above
    f"CREATE TRIGGER audit_adds BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE seq = NEW.seq) {_REFUSED}",  # noqa: S608 - constants
    f"CREATE TRIGGER anchors_stay BEFORE UPDATE ON audit_anchors {_REFUSED}",
    f"CREATE TRIGGER anchors_are_kept BEFORE DELETE ON audit_anchors {_REFUSED}",
]
_POSTGRESQL = [
    f"""CREATE FUNCTION audit_refuses() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION '{WORDS}'; END $$""",
    f"""CREATE FUNCTION audit_keeps() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF {_CUT} THEN RETURN OLD; END IF;
            RAISE EXCEPTION '{WORDS}';
        END $$""",
    "CREATE TRIGGER audit_stays BEFORE UPDATE ON audit FOR EACH ROW EXECUTE FUNCTION audit_refuses()",
    "CREATE TRIGGER audit_is_kept BEFORE DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_keeps()",
    "CREATE TRIGGER audit_is_emptied BEFORE TRUNCATE ON audit EXECUTE FUNCTION audit_refuses()",
    "CREATE TRIGGER anchors_stay BEFORE UPDATE OR DELETE ON audit_anchors FOR EACH ROW EXECUTE FUNCTION audit_refuses()",
    "CREATE TRIGGER anchors_are_emptied BEFORE TRUNCATE ON audit_anchors EXECUTE FUNCTION audit_refuses()",
]
