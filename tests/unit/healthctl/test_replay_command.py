"""The record once more: the same record and policy give the same decisions, and a changed one is found out."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import Result
from sqlalchemy import update

import tests.timelines.timeline as stories
from healthctl.policy_replay.policy_files import build_settings, load_policy_files
from remediator.config import load_config
from remediator.model.pipeline_inputs import PolicyChanged
from remediator.model.plan_steps import Mode
from remediator.pipeline import apply_input
from remediator.playbook.playbook_loader import SHIPPED_FOLDER
from remediator.store import table_schema
from remediator.store.journal import Journal
from remediator.store.json_export import export_lines
from tests.timelines.timeline import Story
from vocabulary.finding import Severity

Run = Callable[..., Result]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A remediator's configuration with a database behind it that holds two decisions."""
    path = tmp_path / "remediator.yaml"
    path.write_text(f"database: sqlite:///{tmp_path}/r.db\nmode: act\nbudget: {{isolated_max: 20}}\n")
    story = Story(build_settings(load_config(path), load_policy_files([])))
    story.job("train", "n1", "n2")
    story.finding("xid/79", Severity.FATAL)
    story.after(5).scheduler_answers("cordon")
    story.finding("row_remap/pending", Severity.ERROR, node="n3")
    story.after(7200)
    with contextlib.closing(Journal(load_config(path).database)) as journal:
        epoch, state = journal.lead(), journal.load()
        term = PolicyChanged(at=stories.START, digest=story.rules.policy.digest, source="p", mode=Mode.ACT)
        for item in [term, *story.inputs]:
            apply_input(state, item, story.rules)
            journal.commit([item], state.take_changes(), epoch)
    return path


def journal_of(config: Path) -> contextlib.closing[Journal]:
    return contextlib.closing(Journal(load_config(config).database))


def test_the_record_comes_out_the_same(healthctl: Run, config: Path) -> None:
    done = healthctl("replay", "--config", str(config), "-o", "json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["deviations"]) == (0, []), done.output
    assert found["compared"] == found["same"] >= 2
    assert found["begins_late"] is False
    assert f"{found['same']} unchanged, 0 different" in healthctl("replay", "--config", str(config)).stdout


def test_an_export_replays_like_its_database(healthctl: Run, config: Path, tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    with journal_of(config) as journal:
        file.write_bytes(b"".join(export_lines(journal.engine, 0.0)))
    ours = healthctl("replay", str(file), "--config", str(config), "-o", "json")
    assert ours.exit_code == 0, ours.output
    assert ours.stdout == healthctl("replay", "--config", str(config), "-o", "json").stdout


def test_a_decision_that_was_changed_is_found_out(healthctl: Run, config: Path) -> None:
    with journal_of(config) as journal, journal.engine.begin() as db:
        body = db.execute(table_schema.decisions.select()).first()
        assert body is not None
        document = json.loads(body.body)
        document["rule"] = "forged\x1b[2J"
        new = msgspec.json.encode(document)
        db.execute(update(table_schema.decisions).where(table_schema.decisions.c.id == body.id).values(body=new))
    done = healthctl("replay", "--config", str(config))
    assert done.exit_code == 1
    assert "forged\\x1b[2J" in done.stdout


def test_another_policy_is_tried(healthctl: Run, config: Path) -> None:
    other = str(SHIPPED_FOLDER / "alternatives" / "restart-first.yaml")
    done = healthctl("replay", "--config", str(config), "--playbook", other)
    assert done.exit_code == 1, done.output
    assert "gpu-lost-first (act)" in done.stdout
    same = healthctl("replay", "--config", str(config), "--playbook", str(SHIPPED_FOLDER / "default.yaml"))
    assert (same.exit_code, "no difference" in same.stdout) == (0, True)


def test_a_record_whose_beginning_was_forgotten_says_so(healthctl: Run, config: Path) -> None:
    with journal_of(config) as journal, journal.engine.begin() as db:
        db.execute(table_schema.inputs.delete().where(table_schema.inputs.c.seq == 1))
    done = healthctl("replay", "--config", str(config))
    assert "lacks its earliest inputs" in done.stdout


def test_where_there_is_nothing_to_replay_it_says_so(healthctl: Run, tmp_path: Path) -> None:
    config = tmp_path / "remediator.yaml"
    config.write_text(f"database: sqlite:///{tmp_path}/r.db\n")
    assert healthctl("replay", "--config", str(config)).exit_code == 2
    (tmp_path / "r.db").touch()
    done = healthctl("replay", "--config", str(config))
    assert (done.exit_code, "an older version wrote it" in done.output) == (3, True)
    with contextlib.closing(sqlite3.connect(tmp_path / "r.db")) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,), "to read it makes no tables"
    with journal_of(config) as journal:
        journal.prepare()
    done = healthctl("replay", "--config", str(config))
    assert (done.exit_code, "no input to replay" in done.output) == (3, True)
    nonsense = tmp_path / "x.jsonl"
    nonsense.write_text("hello\n")
    done = healthctl("replay", str(nonsense))
    assert (done.exit_code, f"{nonsense}:1: not a line of 'remediator export'" in done.output) == (2, True)
    assert healthctl("replay", str(tmp_path / "none.jsonl")).exit_code == 2
