"""From every older schema with its data, on both databases; and never from a newer one."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations

from remediator.model.finding_settlement import Settlement
from remediator.model.journal_records import Action, Incident, JobRef, NodeRecord
from remediator.model.pipeline_inputs import PlacementChanged
from remediator.state.state_changes import StateChanges
from remediator.store import schema_upgrade, table_schema
from remediator.store.journal import Journal, StoreError
from remediator.store.migrations.versions import r0001_first, r0002_playbooks

NOW = 1_700_000_000.0
STEP = {"verb": "drain", "on_failure": {"verb": "wait_drained"}}
INCIDENT = {"id": "i1", "node": "n1", "title": "t", "opened_at": NOW, "state": "acting", "findings": ["f1"], "rank": 3}
FINDING = {
    "id": "f1",
    "node": "n1",
    "check": "xid",
    "code": "79",
    "component": {"kind": "gpu", "name": "GPU-1"},
    "severity": "fatal",
    "summary": "s",
    "first_seen": NOW,
    "last_seen": NOW + 1,
    "origin": "b:1",
}
ACTION = {
    "id": "i1.d1.s0.0",
    "incident": "i1",
    "decision": "i1.d1",
    "node": "n1",
    "verb": "drain",
    "planned_at": NOW,
    "deadline": NOW + 9,
}


def rows_of_version_1() -> dict[str, dict[str, Any]]:
    incident = INCIDENT | {"plan": [[{"step": STEP, "state": "running", "actions": ["i1.d1.s0.0"]}]]}
    node = {"node": "n1", "state": "draining", "since": NOW, "held": True, "held_since": NOW}
    return {
        "nodes": {"id": "n1", "body": node},
        "findings": {"id": "f1", "node": "n1", "active": True, "last_seen": NOW + 1, "body": FINDING},
        "incidents": {"id": "i1", "node": "n1", "closed": False, "opened_at": NOW, "body": incident},
        "actions": {"id": "i1.d1.s0.0", "incident": "i1", "final": False, "body": ACTION},
        "inputs": {
            "epoch": 7,
            "at": NOW,
            "body": {"input": "placement", "at": NOW, "node": "n1", "jobs": ["train"]},
        },
        "audit": {
            "epoch": 7,
            "at": NOW,
            "node": "n1",
            "incident": "i1",
            "body": {"at": NOW, "kind": "node_state", "text": "n1: healthy → draining", "node": "n1"},
        },
        "tokens": {"digest": "d", "role": "node", "name": "n1", "issued_at": NOW},
    }


def written_by(version: int, database: str, outcome: str = "done") -> None:
    """A database as the program of that version left it: `meta.schema`, and no trace of Alembic."""
    journal = Journal(database)
    with journal.engine.begin() as db:
        with Operations.context(MigrationContext.configure(db)):
            r0001_first.upgrade()
            if version == 2:
                r0002_playbooks.upgrade()
        db.execute(sa.text("INSERT INTO meta VALUES ('epoch', '7')"))
        metadata = sa.MetaData()
        metadata.reflect(db)
        rows = rows_of_version_1()
        closed = INCIDENT | {
            "id": "i0",
            "state": "closed",
            "closed_at": NOW,
            "outcome": outcome,
            "findings": ["f0", "f1"],
        }
        old = {"id": "i0", "node": "n1", "closed": True, "opened_at": NOW - 9, "body": json.dumps(closed).encode()}
        db.execute(metadata.tables["incidents"].insert(), [old])
        if version == 2:
            rows["actions"]["body"] = ACTION | {"verb": "cordon"}
            rows["incidents"]["body"] = INCIDENT | {"plan": [[{"step": {"verb": "cordon"}}]]}
            rows["inputs"]["body"] = rows["inputs"]["body"] | {"jobs": [{"job": "train", "attempt": 0}]}
        for name, row in rows.items():
            stored = {k: json.dumps(v).encode() if k == "body" else v for k, v in row.items()}
            db.execute(metadata.tables[name].insert(), [stored])
    journal.close()


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_database_is_taken_on_with_its_data(database: str, version: int) -> None:
    written_by(version, database)
    journal = Journal(database)
    assert journal.lead() == 8, "the epochs go on"
    state = journal.load()
    assert state.nodes["n1"].held is True
    assert state.incidents["i1"].plan[0][0].step.verb.value == "cordon"
    assert state.settled == {"f1": Settlement("i0")}
    assert [a.verb for a in state.actions.values()] == ["cordon"]
    assert list(journal.inputs()) == [PlacementChanged(at=NOW, node="n1", jobs=(JobRef("train", 0),))]
    assert [event.text for _, event in journal.events(0, 10)] == ["n1: healthy → draining"]
    if version == 1:
        (branch,) = state.incidents["i1"].plan[0][0].step.on_failure
        assert branch.verb.value == "drain"
        assert state.isolated_at == [NOW], "the budget counts it"
    with journal.engine.connect() as db:
        (component,) = db.execute(sa.text("SELECT node, kind, component, findings, active FROM components")).all()
        assert tuple(component) == ("n1", "gpu", "GPU-1", 1, 1)
        assert db.execute(sa.text("SELECT state, held FROM nodes")).one() == ("draining", True)
        assert db.execute(sa.text("SELECT verb, state, is_order FROM actions")).one() == ("cordon", "planned", False)
        assert db.execute(sa.text("SELECT kind, actor FROM audit")).first() == ("node_state", "remediator")
    journal.close()


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ("resolved by ann: a new cable", "a person closed it"),
        ("an operator lifted the controller's hold", "a person closed it"),
        ("returned to service", ""),
        ("its findings cleared", ""),
    ],
)
def test_a_persons_word_said_before_counts_from_when_it_was_said(database: str, outcome: str, said: str) -> None:
    written_by(2, database, outcome)
    journal = Journal(database)
    journal.lead()
    assert journal.load().settled == {"f1": Settlement("i0", said, NOW if said else 0.0)}
    journal.close()


def test_what_the_migrations_arrive_at_is_what_the_program_uses(database: str) -> None:
    journal = Journal(database)
    journal.prepare()
    with journal.engine.connect() as db:
        views = sa.inspect(db).get_view_names()
        context = MigrationContext.configure(db, opts={"include_name": lambda name, *_: name != "alembic_version"})
        assert compare_metadata(context, table_schema.metadata) == []
    assert set(views) == {"components", "orders", "alerts", "preflight_runs", "lemon_history"}
    assert schema_upgrade.migration_scripts().get_heads() == [table_schema.REVISION]
    journal.close()


def test_columns_are_filled_alike_by_the_migration_and_by_the_program(database: str) -> None:
    """The same records, once brought along and once written anew."""
    written_by(2, database)
    journal = Journal(database)
    epoch = journal.lead()
    tables = [table_schema.nodes, table_schema.findings, table_schema.incidents, table_schema.actions]

    def columns() -> list[dict[str, Any]]:
        with journal.engine.connect() as db:
            return [dict(row) | {"body": b""} for t in tables for row in db.execute(sa.select(t)).mappings()]

    brought = columns()
    state = journal.load()
    again = StateChanges(
        nodes=state.nodes,
        findings=state.findings,
        incidents=state.incidents,
        actions=state.actions,
        settled=state.settled,
    )
    journal.commit([], again, epoch)
    assert columns() == brought
    journal.close()


@pytest.mark.parametrize(
    ("table", "key", "found"), [("meta", "value", "99"), ("alembic_version", "version_num", "9999")]
)
def test_a_newer_schema_is_refused(database: str, table: str, key: str, found: str) -> None:
    journal = Journal(database)
    journal.prepare()
    with journal.engine.begin() as db:
        if table == "meta":
            db.execute(sa.text("DROP TABLE alembic_version"))
        db.execute(sa.text(f"UPDATE {table} SET {key} = '{found}'" + (" WHERE key = 'schema'" * (table == "meta"))))  # noqa: S608 - constants of this test
    journal.close()
    with pytest.raises(StoreError, match=f"schema is version {found}"):
        Journal(database)


def test_a_failed_upgrade_leaves_everything_as_it_was(database: str) -> None:
    written_by(1, database)
    journal = Journal(database)
    with journal.engine.begin() as db:
        db.execute(sa.text("UPDATE inputs SET body = :b"), {"b": b"no JSON"})
    with pytest.raises(Exception, match="JSON"):
        journal.lead()
    with journal.engine.connect() as db:
        tables = set(sa.inspect(db).get_table_names())
    assert "occurrences" not in tables
    assert "alembic_version" not in tables
    journal.close()


def test_records_and_rows_of_an_order(database: str) -> None:
    journal = Journal(database)
    epoch = journal.lead()
    incident = Incident(id="i1", node="n1", title="t", opened_at=NOW)
    told = Action(id="a", incident="i1", decision="d", node="n1", verb="alert", planned_at=NOW, deadline=NOW)
    journal.commit(
        [], StateChanges(nodes={"n1": NodeRecord(node="n1")}, incidents={"i1": incident}, actions={"a": told}), epoch
    )
    with journal.engine.connect() as db:
        assert db.execute(sa.text("SELECT node, kind, state FROM alerts")).one() == ("n1", "alert", "planned")
        assert db.execute(sa.text("SELECT count(*) FROM orders")).scalar_one() == 0
    journal.close()
