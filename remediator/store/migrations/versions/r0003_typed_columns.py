"""Columns for what operators ask, filled from the records; views of actions, findings and occurrences by kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

from remediator.store.migrations.stored_bodies import Document, fill

revision = "0003"
down_revision = "0002"

TEXT_MAX = 255
_Serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
VIEWS = {
    "components": """
        SELECT node, component_kind AS kind, component, MIN(first_seen) AS first_seen, MAX(last_seen) AS last_seen,
               COUNT(*) AS findings, SUM(CASE WHEN active THEN 1 ELSE 0 END) AS active
        FROM findings GROUP BY node, component_kind, component""",
    "orders": """
        SELECT id, incident, decision, node, verb AS kind, state, planned_at, finished_at, detail
        FROM actions WHERE is_order""",
    "alerts": """
        SELECT id, incident, decision, node, verb AS kind, state, planned_at, finished_at, attempts, detail
        FROM actions WHERE verb IN ('alert', 'ticket')""",
    "preflight_runs": """
        SELECT id, incident, node, state, planned_at, finished_at, detail
        FROM actions WHERE verb = 'run_preflight'""",
    "lemon_history": """
        SELECT node, kind, component, SUM(count) AS times, MIN(at) AS first_at, MAX(at) AS last_at
        FROM occurrences WHERE NOT injected GROUP BY node, kind, component""",
}


def upgrade() -> None:
    """Add the columns, fill them, make the views."""
    for name, columns in _columns().items():
        for column in columns:
            op.add_column(name, column)
    for name, indexed in (("findings", "last_seen"), ("incidents", "closed_at"), ("inputs", "at")):
        op.create_index(f"ix_{name}_{indexed}", name, [indexed])
    db = op.get_bind()
    for name, values in _VALUES.items():
        key: sa.Column[Any] = (
            sa.Column("seq", _Serial, primary_key=True)
            if name in {"occurrences", "audit"}
            else sa.Column("id", sa.String, primary_key=True)
        )
        fill(db, name, key, _columns()[name], values)
    for name, query in VIEWS.items():
        op.execute(f"CREATE VIEW {name} AS {query}")
    db.execute(sa.text("UPDATE meta SET value = '0003' WHERE key = 'schema'"))
    # The row that a new term raises and every commit locks must be there.
    db.execute(
        sa.text(
            "INSERT INTO meta (key, value) SELECT 'epoch', '0' WHERE NOT EXISTS (SELECT 1 FROM meta WHERE key = 'epoch')"
        )
    )


def _columns() -> dict[str, list[sa.Column[Any]]]:
    """New columns by table; created for each use, since a column belongs to one table."""
    return {
        "nodes": [_text("state", 32), _time("since"), _flag("held"), _text("cause")],
        "findings": [
            _text("kind"),
            _text("severity", 32),
            _text("component_kind", 32),
            _text("component"),
            _time("first_seen"),
            _flag("injected"),
        ],
        "incidents": [
            _text("title"),
            _text("state", 32),
            _text("rule"),
            _time("closed_at"),
            _text("outcome"),
            _flag("injected"),
        ],
        "decisions": [_text("node"), _text("answer", 32), _text("rule"), _text("policy", 64)],
        "actions": [
            _text("decision", 96),
            _text("node"),
            _text("verb", 64),
            _text("state", 32),
            _time("planned_at"),
            _time("finished_at"),
            _number("attempts"),
            _flag("is_order"),
            _text("detail"),
        ],
        "occurrences": [
            _text("node"),
            _text("kind"),
            _text("component"),
            _text("incident", 64),
            _number("count"),
            _flag("injected"),
        ],
        "audit": [_text("kind", 64), _text("actor")],
    }


def _text(name: str, length: int = TEXT_MAX) -> sa.Column[Any]:
    return sa.Column(name, sa.String(length), nullable=False, server_default="")


def _number(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Integer, nullable=False, server_default="0")


def _flag(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false())


def _time(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Float)


def _taken(defaults: dict[str, Any]) -> Callable[[Document], Document]:
    """A function that takes these fields out of a record, or their defaults."""

    def values(record: Document) -> Document:
        return {name: _stored(record.get(name, default)) for name, default in defaults.items()}

    return values


def _stored(value: Any) -> Any:
    return value.replace("\0", "")[:TEXT_MAX] if isinstance(value, str) else value


def _finding(record: Document) -> Document:
    component = record["component"]
    name = component.get("name") or component.get("pci") or ""
    kind = f"{record['check']}/{record['code']}"
    more = {"kind": _stored(kind), "component_kind": component["kind"], "component": _stored(name)}
    return more | _taken({"severity": "", "first_seen": None, "injected": False})(record)


def _action(record: Document) -> Document:
    known = {"decision": "", "node": "", "verb": "", "state": "planned", "planned_at": None, "finished_at": None}
    return _taken(known | {"attempts": 0, "detail": ""})(record) | {"is_order": record.get("order") is not None}


_VALUES = {
    "nodes": _taken({"state": "healthy", "since": 0.0, "held": False, "cause": ""}),
    "findings": _finding,
    "incidents": _taken(
        {"title": "", "state": "open", "rule": "", "closed_at": None, "outcome": "", "injected": False}
    ),
    "decisions": _taken({"node": "", "answer": "", "rule": "", "policy": ""}),
    "actions": _action,
    "occurrences": _taken({"node": "", "kind": "", "component": "", "incident": "", "count": 1, "injected": False}),
    "audit": _taken({"kind": "", "actor": "remediator"}),
}
