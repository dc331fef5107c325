"""Tables. Each keeps the record itself (JSON, the same codec as the wire) beside the columns that queries need."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, LargeBinary, MetaData, String, Table

SCHEMA_VERSION = 2

metadata = MetaData()
_Serial = BigInteger().with_variant(Integer, "sqlite")

meta = Table(
    "meta", metadata, Column("key", String(64), primary_key=True), Column("value", String(255), nullable=False)
)

tokens = Table(
    "tokens",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("name", String(255), nullable=False),
    Column("issued_at", Float, nullable=False),
    Column("revoked_at", Float),
)

nodes = Table(
    "nodes", metadata, Column("id", String(255), primary_key=True), Column("body", LargeBinary, nullable=False)
)

findings = Table(
    "findings",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("node", String(255), nullable=False),
    Column("active", Boolean, nullable=False, index=True),
    Column("last_seen", Float, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("findings_by_node", "node", "active"),
)

incidents = Table(
    "incidents",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("node", String(255), nullable=False, index=True),
    Column("closed", Boolean, nullable=False, index=True),
    Column("opened_at", Float, nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),
)

decisions = Table(
    "decisions",
    metadata,
    Column("id", String(96), primary_key=True),
    Column("incident", String(64), nullable=False, index=True),
    Column("at", Float, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

actions = Table(
    "actions",
    metadata,
    Column("id", String(512), primary_key=True),
    Column("incident", String(64), nullable=False, index=True),
    Column("final", Boolean, nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),
)

occurrences = Table(
    "occurrences",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),
)

evidence = Table(
    "evidence",
    metadata,
    Column("order", String(512), primary_key=True),
    Column("incident", String(64), nullable=False, index=True),
    Column("node", String(255), nullable=False),
    Column("at", Float, nullable=False, index=True),
    Column("bytes", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

inputs = Table(
    "inputs",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("epoch", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("epoch", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("node", String(255), nullable=False),
    Column("incident", String(64), nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),
)
