"""What is old is forgotten in small pieces, what is still needed stays, and an export holds all the rest."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from sqlalchemy import func, select

from remediator.commands.store_commands import parse_since_option
from remediator.config import ConfigError, load_config
from remediator.main import main
from remediator.model.journal_records import Action, ActionState, AuditEvent, Decision, Incident, IncidentState
from remediator.model.journal_records import Answer as Said
from remediator.model.occurrence import Occurrence
from remediator.model.override_records import MODE, ModeOverride
from remediator.model.pipeline_inputs import Tick
from remediator.model.plan_steps import Mode
from remediator.model.views_evidence import EvidenceEntry
from remediator.state.cluster_state import ClusterState
from remediator.store import audit_log, table_schema
from remediator.store.evidence_store import EvidenceStore
from remediator.store.journal import Journal, StoreError
from remediator.store.json_export import export_lines
from remediator.store.retention import RetentionCleaner, RetentionSettings
from vocabulary.clock import ManualClock
from vocabulary.finding import Finding, Severity
from vocabulary.identity import Component, ComponentKind

DAY_S = 86400.0
NOW = 1_700_000_000.0


def finding(name: str, at: float, *, active: bool = False) -> Finding:
    gpu = Component(ComponentKind.GPU, "GPU-1")
    base = Finding(
        id=name, node="n1", check="c", code="d", component=gpu, severity=Severity.ERROR, summary="s", first_seen=at,
        last_seen=at, origin="o",
    )  # fmt: skip
    return base if active else base.cleared(at, "a test")


def a_case(state: ClusterState, name: str, opened: float, closed: float | None) -> None:
    """A finding and its incident with a decision and an action."""
    state.put_finding(finding(f"f-{name}", opened))
    state.put_incident(
        Incident(
            id=name, node="n1", title="t", opened_at=opened, closed_at=closed, findings=(f"f-{name}",),
            state=IncidentState.OPEN if closed is None else IncidentState.CLOSED,
        )
    )  # fmt: skip
    state.put_decision(
        Decision(
            id=f"{name}.d1", incident=name, node="n1", at=opened, answer=Said.ACT, rule="r", reason="", policy="",
            findings=(),
        )
    )  # fmt: skip
    action = Action(
        id=f"{name}.d1.s0", incident=name, decision=f"{name}.d1", node="n1", verb="alert", planned_at=opened, deadline=0
    )
    state.changes.actions[action.id] = action


def by_hand(state: ClusterState, name: str, planned: float, *, done: bool) -> None:
    """What a person had done in the scheduler."""
    action = Action(id=name, incident="", decision="", node="n1", verb="cordon_by_hand", planned_at=planned, deadline=0)
    state.put_action(msgspec.structs.replace(action, state=ActionState.SUCCEEDED) if done else action)


@pytest.fixture
def filled(database: str) -> tuple[Journal, int]:
    journal, state = Journal(database), ClusterState()
    epoch = journal.lead()
    old = NOW - 400 * DAY_S
    a_case(state, "old", old, old + 10)
    a_case(state, "lasting", old, NOW - DAY_S)
    a_case(state, "open", old, None)
    a_case(state, "new", NOW - 2 * DAY_S, NOW - DAY_S)
    for name, planned, done in (("hand-old", old, True), ("hand-new", NOW - DAY_S, True), ("hand-open", old, False)):
        by_hand(state, name, planned, done=done)
    state.put_operator_override(MODE, ModeOverride(Mode.OBSERVE, "ann", old))
    state.put_finding(finding("orphan", old))
    state.put_finding(finding("asserted", old, active=True))
    for at in (old, NOW - DAY_S):
        state.remember(Occurrence(at, "c/d", "n1"))
        for number in range(700):
            state.note(at + number, "k", "an event")
    ticks = [Tick(at=old + number) for number in range(700)] + [Tick(at=NOW - DAY_S)]
    journal.commit(ticks, state.take_changes(), epoch)
    for number, at in enumerate((old, NOW - DAY_S), 1):
        journal.set_aside(Tick(at=at), "no reason", AuditEvent(at=NOW, kind="k", text="t"), epoch, number)
    for name in ("old", "new"):
        EvidenceStore(journal.engine).keep(EvidenceEntry(f"o-{name}", name, "n1", old, 3), b"abc")
    return journal, epoch


def ids(journal: Journal, table: Any, column: str = "id") -> list[str]:
    with journal.engine.connect() as db:
        return sorted(db.execute(select(table.c[column])).scalars())


def count(journal: Journal, table: Any) -> int:
    with journal.engine.connect() as db:
        return int(db.execute(select(func.count()).select_from(table)).scalar_one())


def test_only_what_is_old_and_over_is_forgotten(filled: tuple[Journal, int]) -> None:
    journal, epoch = filled
    before = journal.load()
    supervisor = RetentionCleaner(journal.engine, RetentionSettings(audit_days=365), ManualClock(NOW))
    steps = sum(1 for _ in itertools.takewhile(bool, (supervisor.step(epoch) for _ in range(50))))
    assert 5 < steps < 50, "in pieces, and then nothing is left to do"
    assert ids(journal, table_schema.incidents) == ["lasting", "new", "open"]
    assert ids(journal, table_schema.findings) == ["asserted", "f-lasting", "f-new", "f-open"]
    assert ids(journal, table_schema.decisions, "incident") == ["lasting", "new", "open"]
    assert ids(journal, table_schema.actions, "incident") == ["", "", "lasting", "new", "open"]
    assert ids(journal, table_schema.actions)[:2] == ["hand-new", "hand-open"]
    assert ids(journal, table_schema.evidence, "incident") == ["new"]
    assert (count(journal, table_schema.occurrences), count(journal, table_schema.inputs)) == (1, 1)
    assert journal.count_set_aside() == 1
    with journal.engine.connect() as db:
        found = audit_log.verify_chain(db)
    assert (found.broken, found.cut, found.events) == ("", 700, 705)
    after = journal.load()
    assert after.incidents == before.incidents
    assert after.operator_overrides == before.operator_overrides != {}
    assert after.actions == before.actions
    assert "hand-open" in after.actions
    assert after.findings.keys() == {"asserted", "f-open"} < before.findings.keys(), "what is present is all there"
    journal.close()


def test_for_ever_is_for_ever_and_a_deposed_leader_forgets_nothing(filled: tuple[Journal, int]) -> None:
    journal, epoch = filled
    keep_all = RetentionSettings(inputs_days=0, history_days=0, audit_days=0)
    assert RetentionCleaner(journal.engine, keep_all, ManualClock(NOW)).step(epoch) is False
    with pytest.raises(StoreError, match="another replica leads"):
        RetentionCleaner(journal.engine, RetentionSettings(), ManualClock(NOW)).step(epoch - 1)
    assert count(journal, table_schema.inputs) == 701
    journal.close()


def test_the_last_input_stays_however_old(database: str) -> None:
    journal = Journal(database)
    epoch = journal.lead()
    state = ClusterState()
    journal.commit([Tick(at=NOW - 900 * DAY_S), Tick(at=NOW - 800 * DAY_S)], state.take_changes(), epoch)
    supervisor = RetentionCleaner(journal.engine, RetentionSettings(), ManualClock(NOW))
    while supervisor.step(epoch):
        pass
    assert [item.at for item in journal.inputs()] == [NOW - 800 * DAY_S]
    journal.close()


def test_an_export_holds_every_record_and_no_credential(filled: tuple[Journal, int]) -> None:
    journal, _ = filled
    with journal.engine.begin() as db:
        db.execute(table_schema.tokens.insert().values(digest="digest", role="node", name="n1", issued_at=1.0))
    lines = [json.loads(line) for line in export_lines(journal.engine, 0.0)]
    by_table = {
        name: [line["record"] for line in lines if line["table"] == name] for name in table_schema.metadata.tables
    }
    assert by_table["tokens"] == by_table["meta"] == []
    for name in (
        "findings",
        "incidents",
        "decisions",
        "actions",
        "occurrences",
        "inputs",
        "audit",
        "evidence",
        "set_aside",
    ):
        assert len(by_table[name]) == count(journal, table_schema.metadata.tables[name]), name
    again = msgspec.convert(by_table["findings"], list[Finding])
    assert {f.id: f for f in again}["asserted"] == finding("asserted", NOW - 400 * DAY_S, active=True)
    chain = audit_log.GENESIS
    for line in [line for line in lines if line["table"] == "audit"]:
        body = msgspec.json.encode(line["record"])
        assert audit_log.seal_hash(chain, line["seq"], line["epoch"], body) == line["hash"], (
            "the chain can be walked outside"
        )
        chain = line["hash"]
    late = [json.loads(line) for line in export_lines(journal.engine, NOW - 10 * DAY_S)]
    kept = {line["record"]["id"] for line in late if line["table"] == "incidents"}
    assert kept == {"lasting", "new", "open"}
    journal.close()


def test_the_command_line(tmp_path: Path) -> None:
    config = tmp_path / "r.yaml"
    config.write_text(f"database: sqlite:///{tmp_path}/r.db\n")
    run = CliRunner().invoke
    missing = run(main, ["audit", "verify", "--config", str(config)])
    assert (missing.exit_code, "does not exist; run this on" in missing.output) == (1, True)
    journal, state = Journal(f"sqlite:///{tmp_path}/r.db"), ClusterState()
    state.note(1.0, "k", "an event")
    journal.commit([], state.take_changes(), journal.lead())
    journal.close()
    assert run(main, ["audit", "verify", "--config", str(config)]).output.startswith("1 events are intact")
    out = tmp_path / "all.jsonl"
    assert run(main, ["export", "--config", str(config), "--since", "1969-12-31", "-o", str(out)]).exit_code == 0
    assert [json.loads(line)["table"] for line in out.read_text().splitlines()] == ["audit"]
    assert run(main, ["export", "--config", str(config), "-o", "-"]).output.startswith('{"table":"audit"')
    assert "is not a time" in run(main, ["export", "--config", str(config), "--since", "soon", "-o", "-"]).output
    assert run(main, ["compact", "--config", str(config)]).output.startswith("compacted")


def test_moments() -> None:
    assert parse_since_option("2d", NOW) == NOW - 2 * DAY_S
    assert parse_since_option("3h", NOW) == NOW - 3 * 3600
    assert parse_since_option("2023-11-14T22:13:20Z", 0) == parse_since_option("2023-11-14T22:13:20", 0) == NOW


@pytest.mark.parametrize("words", ["{inputs_days: -1}", "{history_days: 30}", "{input_days: 3}"])
def test_a_wrong_retention_is_refused(tmp_path: Path, words: str) -> None:
    (tmp_path / "r.yaml").write_text(f"retention: {words}\n")
    with pytest.raises(ConfigError, match=r"r\.yaml"):
        load_config(tmp_path / "r.yaml")
