from __future__ import annotations

import os
from pathlib import Path

import pytest

from vocabulary.secret_file import read_by_others

NOBODY = 65534


@pytest.mark.parametrize(
    ("mode", "told"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True), (0o644, True)]
)
def test_a_file_that_others_may_read_is_named_with_what_to_do(tmp_path: Path, mode: int, *, told: bool) -> None:
    file = tmp_path / "token"
    file.touch()
    file.chmod(mode)
    words = read_by_others(file)
    assert bool(words) is told
    assert not told or f"{file}: other users can read this secret ({mode:04o}): chmod 0600" in words


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize(("mode", "told"), [(0o640, False), (0o644, True)])
def test_its_owner_may_mean_a_group_to_read_it(tmp_path: Path, mode: int, *, told: bool) -> None:
    file = tmp_path / "token"
    file.touch()
    file.chmod(mode)
    os.chown(file, NOBODY, NOBODY)
    assert bool(read_by_others(file)) is told


def test_what_kubernetes_mounts_in_a_pod_is_read_by_nobody_else(tmp_path: Path) -> None:
    made = tmp_path / "..2026_11_22_10_00_00.123"
    made.mkdir()
    (made / "token").touch(mode=0o644)
    (tmp_path / "..data").symlink_to(made.name)
    (tmp_path / "token").symlink_to("..data/token")
    assert read_by_others(tmp_path / "token") == ""


def test_what_cannot_be_looked_at_is_for_its_reader_to_tell(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert read_by_others(tmp_path / "loop") == read_by_others(tmp_path / "none") == ""
