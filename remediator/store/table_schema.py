"""The current tables. Each keeps the record itself (JSON, the wire codec) beside the columns that queries need.

This must match the result of the migrations; a test compares the two. The operators' views exist in the migrations
only.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, LargeBinary, MetaData, String, Table, false

REVISION = "0008"  # the newest of `migrations/versions`

metadata = MetaData()
_Serial = BigInteger().with_variant(Integer, "sqlite")


def _text_column(name: str, length: int = 255) -> Column[str]:
    return Column(name, String(length), nullable=False, server_default="")


def _number_column(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default="0")


def _flag_column(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False, server_default=false())


def _time_column(name: str, *, index: bool = False) -> Column[float]:
    return Column(name, Float, index=index)


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
    Column("expires_at", Float),
    _text_column("issued_by"),
    Column("uses_left", Integer),  # of a join secret
    _flag_column("replaces"),  # a join secret that may replace a node's token
    Index("tokens_by_name", "role", "name"),
)

nodes = Table(
    "nodes",
    metadata,
    Column("id", String(255), primary_key=True),
    Column("body", LargeBinary, nullable=False),
    _text_column("state", 32),
    _time_column("since"),
    _flag_column("held"),
    _text_column("cause"),
)

findings = Table(
    "findings",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("node", String(255), nullable=False),
    Column("active", Boolean, nullable=False, index=True),
    Column("last_seen", Float, nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),
    _text_column("kind"),
    _text_column("severity", 32),
    _text_column("component_kind", 32),
    _text_column("component"),
    _time_column("first_seen"),
    _flag_column("injected"),
    _text_column("settled_by", 64),  # the closed incident that settled it, as it is
    _text_column("settled_word"),  # the operator's reason for closing that; empty: no operator did
    _time_column("settled_at"),
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
    _text_column("title"),
    _text_column("state", 32),
    _text_column("rule"),
    _time_column("closed_at", index=True),
    _text_column("outcome"),
    _flag_column("injected"),
)

decisions = Table(
    "decisions",
    metadata,
    Column("id", String(96), primary_key=True),
    Column("incident", String(64), nullable=False, index=True),
    Column("at", Float, nullable=False),
    Column("body", LargeBinary, nullable=False),
    _text_column("node"),
    _text_column("answer", 32),
    _text_column("rule"),
    _text_column("policy", 64),
)

actions = Table(
    "actions",
    metadata,
    Column("id", String(512), primary_key=True),
    Column("incident", String(64), nullable=False, index=True),
    Column("final", Boolean, nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),
    _text_column("decision", 96),
    _text_column("node"),
    _text_column("verb", 64),
    _text_column("state", 32),
    _time_column("planned_at", index=True),
    _time_column("finished_at"),
    _number_column("attempts"),
    _flag_column("is_order"),
    _text_column("detail"),
)

occurrences = Table(
    "occurrences",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),
    _text_column("node"),
    _text_column("kind"),
    _text_column("component"),
    _text_column("incident", 64),
    _number_column("count"),
    _flag_column("injected"),
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
    Column("at", Float, nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),
)

operator_overrides = Table(  # operator overrides for the whole cluster, until changed or for a time
    "standing",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("body", LargeBinary, nullable=False),
)

set_aside = Table(
    "set_aside",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("epoch", Integer, nullable=False),
    Column("at", Float, nullable=False, index=True),
    _text_column("why"),
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
    _text_column("kind", 64),
    _text_column("actor"),
    _text_column("hash", 64),
    Index("audit_by_node", "node", "seq"),
)

audit_anchors = Table(
    "audit_anchors",
    metadata,
    Column("through", BigInteger, primary_key=True, autoincrement=False),
    Column("hash", String(64), nullable=False),
    Column("events", Integer, nullable=False),
    Column("first_at", Float, nullable=False),
    Column("last_at", Float, nullable=False),
    Column("cut_at", Float, nullable=False),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", String(700), primary_key=True),
    Column("receiver", String(255), nullable=False),
    Column("state", String(16), nullable=False),
    Column("told", Boolean, nullable=False),
    Column("batch", String(64), nullable=False),
    Column("claimed_at", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("deliveries_by_receiver", "receiver", "state"),
)
