"""A database as the first program wrote it (revision 1bb5b42, dumped from SQLite and PostgreSQL) is taken on, and its plans go on.

The story in it: n1 was drained, reset, tested and given back; then n3 lost a GPU under a job, and n4 lost memory rows. Nothing had
been answered of those two plans when that program was stopped.
"""

from __future__ import annotations

import sqlite3
from collections import Counter

import psycopg
import pytest
from sqlalchemy.engine import make_url

from remediator.model.journal_records import ActionState
from remediator.model.pipeline_inputs import ActionEnded, PlacementChanged
from remediator.model.scheduler_hold import ActionOutcome, ActionResult
from remediator.pipeline import apply_input
from remediator.store import audit_log
from remediator.store.journal import Journal
from tests.timelines.timeline import START, settings
from tests.unit.conftest import GOLDEN


@pytest.fixture
def old(database: str) -> Journal:
    url = make_url(database)
    dump = (GOLDEN / "remediator" / "store" / f"0001.{url.get_backend_name()}.sql").read_text()
    if url.get_backend_name() == "sqlite":
        with sqlite3.connect(str(url.database)) as file:
            file.executescript(dump)
        file.close()
    else:
        with psycopg.connect(database) as server:
            server.execute(dump.encode())
    return Journal(database)


def test_what_the_first_program_wrote_is_all_there(old: Journal) -> None:
    assert old.lead() == 2, "the epochs go on"
    state = old.load()
    assert {name: node.state.value for name, node in state.nodes.items()} == {
        "n1": "probation", "n2": "healthy", "n3": "draining", "n4": "draining",
    }  # fmt: skip
    assert state.held == {"n3", "n4"}
    assert state.isolated_at == [START, START + 6, START + 7], "the rate counts them"
    assert Counter(i.state.value for i in state.incidents.values()) == {"acting": 2}
    (returned,) = [i for i in old.recent_incidents(9) if i.node == "n1"]
    found = old.incident(returned.id)
    assert found is not None
    assert [a.verb for a in found[3]] == [
        "cordon", "checkpoint_then_eject", "checkpoint_then_eject", "reset_gpu", "run_preflight", "resume",
    ]  # fmt: skip
    assert sum(isinstance(item, PlacementChanged) for item in old.inputs()) == 6
    with old.engine.connect() as db:
        assert audit_log.verify_chain(db).broken == ""
    old.close()


def test_the_plans_in_it_go_on(old: Journal) -> None:
    epoch, state, rules = old.lead(), old.load(), settings()
    before = {a.id: a for a in state.actions.values() if a.verb == "cordon" and not a.state.final}
    assert {a.node for a in before.values()} == {"n3", "n4"}
    for name in before:
        item = ActionEnded(at=START + 60, action=name, outcome=ActionOutcome(ActionResult.DONE, "as told"))
        apply_input(state, item, rules)
        old.commit([item], state.take_changes(), epoch)
    again = old.load()
    assert {again.actions[name].state for name in before} == {ActionState.SUCCEEDED}
    assert {name: n.hold_confirmed_at for name, n in again.nodes.items() if n.held} == dict.fromkeys(
        ("n3", "n4"), START + 60
    )
    with old.engine.connect() as db:
        assert audit_log.verify_chain(db).broken == ""
    old.close()
