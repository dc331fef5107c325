"""What our processes leave on a disk is their own, whatever the umask of whoever started them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.healthd_node import Node, fake_nvml

ALL = 0o077


def readable_by_others(place: Path) -> set[str]:
    """Files below a folder that others may read or write, sockets aside."""
    files = [path for path in place.rglob("*") if stat.S_ISREG(path.lstat().st_mode)]
    return {path.name for path in files if path.lstat().st_mode & ALL}


@pytest.fixture
def careless() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_the_controllers_database_and_what_lies_beside_it(tmp_path: Path, careless: None) -> None:
    config = tmp_path / "remediator.yaml"
    config.write_text(f"database: sqlite:///{tmp_path}/store/r.db\n")
    (tmp_path / "store").mkdir()
    command = [sys.executable, "-m", "remediator", "token", "issue", "--operator", "ann", "--config", str(config)]
    subprocess.run(command, check=True, capture_output=True)
    assert {path.name for path in (tmp_path / "store").iterdir()} >= {"r.db"}
    assert readable_by_others(tmp_path / "store") == set()


def test_what_a_node_keeps(tmp_path: Path, careless: None) -> None:
    log = tmp_path / "kern.log"
    log.touch()
    library = fake_nvml().build(tmp_path)
    token = tmp_path / "token"
    token.write_text("made-with-a-careless-umask")
    node = Node(tmp_path, library, kernel_log=log, remediator={"url": "http://127.0.0.1:9", "token_file": str(token)})
    node.start()
    try:
        assert f"{token}: other users can read this secret (0666): chmod 0600" in node.log()
        state, run, beacons = tmp_path / "state", tmp_path / "run", node.beacons
        assert state.stat().st_mode & ALL == 0, "nobody else may enter"
        assert run.stat().st_mode & 0o022 == 0, "nobody else may put a socket in its socket's place"
        assert stat.S_IMODE(beacons.stat().st_mode) == 0o1777, "everybody's ranks, and nobody touches another's"
    finally:
        node.kill()
