"""A page of the controller's SQLite is damaged while it runs: it says so and ends; the documented way back, with what it promises."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from controller_process import START_DEADLINE_S, Controller
from replicas import until
from test_remediator_api import report

from healthctl.process_supervision.supervised_programs import wait_until_ready
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.identity import Component, ComponentKind

pytestmark = pytest.mark.timeout(600)  # for a busy machine
PAGE = 4096


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    found = Controller(tmp_path)
    found.start()
    yield found
    if found.process is not None and found.process.poll() is None:
        found.end(signal.SIGKILL)


def lost_gpu(node: str, number: int) -> Finding:
    gpu = Component(ComponentKind.GPU, f"GPU-{number}", f"0000:3{number}:00.0", number)
    return Finding(
        id=finding_id(node, "xid", "79", gpu, "o"),
        node=node,
        check="xid",
        code="79",
        component=gpu,
        severity=Severity.FATAL,
        summary="fallen off the bus",
        first_seen=float(number),
        last_seen=float(number),
        origin="o",
    )


def tell(controller: Controller, node: str, seq: int, *findings: Finding) -> int:
    """What the node says now; the answer's status."""
    return controller.call("POST", f"/v1/nodes/{node}/report", node, data=report(node, seq, findings)).status_code


def held(place: Path) -> list[str]:
    """By the scheduler's own record."""
    file = place / "holds.json"
    return sorted(json.loads(file.read_text())["holds"]) if file.exists() else []


def remediator(controller: Controller, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "remediator", *words, "--config", str(controller.config)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=START_DEADLINE_S)


def spoil_all(file: Path) -> None:
    """Noise over every page but the first."""
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    size = file.stat().st_size
    with file.open("r+b") as database:
        database.seek(PAGE)
        database.write(random.Random(1).randbytes(size - PAGE))  # noqa: S311 - the same noise every time


def test_damage_ends_the_controller_with_a_sentence_and_a_copy_brings_back_what_the_document_says(
    controller: Controller, tmp_path: Path
) -> None:
    file, copy = tmp_path / "r.db", tmp_path / "copy.db"
    one, other = lost_gpu("n1", 1), lost_gpu("n2", 2)
    assert tell(controller, "n1", 1, one) == 200
    until(lambda: held(tmp_path) == ["n1"], "nobody cordoned n1")
    with sqlite3.connect(file) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    passing = lost_gpu("n1", 3)
    assert tell(controller, "n1", 2, one, passing) == 200
    assert tell(controller, "n1", 3, one, passing.cleared(9.0, "a test")) == 200
    since = controller.issue("--operator", "eve")

    spoil_all(file)
    assert controller.process is not None
    wait_until_ready(lambda: tell_or_gone(controller, other) != 200, 90, "the damage to be noticed")
    assert controller.process.wait(START_DEADLINE_S) == 1
    for words in (("serve",), ("audit", "verify"), ("compact",)):
        said = remediator(controller, *words)
        assert said.returncode == 1
        assert f"database {file} is damaged" in said.stderr.replace("sqlite:///", "")
        assert "docs/how-to/damaged-database.md" in said.stderr
        assert "Traceback" not in said.stderr
    assert held(tmp_path) == ["n1"], "something was done on a damaged database"

    aside = tmp_path / "damaged"
    aside.mkdir()
    for each in tmp_path.glob("r.db*"):
        each.rename(aside / each.name)
    copy.rename(file)
    assert remediator(controller, "audit", "verify").returncode == 0
    controller.start()

    assert tell(controller, "n1", 4, one) == 200
    assert tell(controller, "n2", 1, other) == 200
    known = {each["id"] for each in findings(controller)}
    assert {one.id, other.id} <= known
    assert passing.id not in known, "the document says that it is lost"
    assert held(tmp_path)[0] == "n1"
    incidents = controller.call("GET", "/v1/incidents", "ann").json()["incidents"]
    assert sorted(each["node"] for each in incidents) == ["n1", "n2"]
    assert controller.call("GET", "/v1/status", since).status_code == 401
    assert controller.call("GET", "/v1/status", "ann").status_code == 200
    assert remediator(controller, "audit", "verify").returncode == 0


def findings(controller: Controller) -> list[dict[str, str]]:
    """All that the store has, by SQL."""
    place = controller.config.with_name("r.db")
    with sqlite3.connect(f"file:{place}?mode=ro", uri=True) as db:
        return [json.loads(body) for (body,) in db.execute("SELECT body FROM findings")]


def tell_or_gone(controller: Controller, finding: Finding) -> int:
    """0 where nobody answers any more."""
    try:
        return tell(controller, "n2", 1, finding)
    except OSError:
        return 0
