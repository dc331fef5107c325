from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.trainer.checkpoint import CheckpointError, Checkpoints, read_manifest, seal, verify


def save(checkpoints: Checkpoints, step: int, content: bytes = b"weights") -> Path:
    directory = checkpoints.open(step)
    (directory / "__0_0.distcp").write_bytes(content)
    (directory / ".metadata").write_bytes(b"plan")
    files = seal(directory, ["__0_0.distcp"]) | seal(directory, [".metadata"])
    return checkpoints.complete(step, 1, files)


def test_what_was_saved_is_the_latest(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "made" / "when needed")
    assert checkpoints.latest() is None

    save(checkpoints, 9)
    path = save(checkpoints, 10)

    found = checkpoints.latest()
    assert found is not None
    assert (found.path, found.manifest.step, found.manifest.world) == (path, 10, 1)
    assert set(found.manifest.files) == {"__0_0.distcp", ".metadata"}


def test_a_crash_before_the_rename_leaves_the_one_before(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    first = save(checkpoints, 1)
    (checkpoints.open(2) / "__0_0.distcp").write_bytes(b"half")

    found = checkpoints.latest()

    assert found is not None
    assert found.path == first
    assert save(checkpoints, 3).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000001", "step-000000003"]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda path: (path / "__0_0.distcp").write_bytes(b"weigh"), "__0_0.distcp: 5 bytes, the manifest says 7"),
        (lambda path: (path / "__0_0.distcp").write_bytes(b"wEights"), "__0_0.distcp: its SHA-256 is not the manifest's"),
        (lambda path: (path / ".metadata").unlink(), ".metadata: missing"),
        (lambda path: (path / "manifest.json").unlink(), "manifest.json: No such file"),
        (lambda path: (path / "manifest.json").write_text('{"version": 1'), "manifest.json: not JSON"),
        (lambda path: (path / "manifest.json").write_text('{"version": 9}'), "manifest.json: version"),
        (lambda path: (path / "manifest.json").write_text('{"version": 1}'), "manifest.json: field missing or wrong: KeyError"),
        (lambda path: (path / "stray").touch(), "stray: not in the manifest"),
    ],
)  # fmt: skip
def test_a_damaged_checkpoint_is_named_and_passed_over(
    damage: Callable[[Path], object], text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path)
    good = save(checkpoints, 1)
    damage(save(checkpoints, 2))

    with caplog.at_level(logging.WARNING):
        found = checkpoints.latest()

    assert found is not None
    assert found.path == good
    assert text in caplog.text
    assert "falling back from step-000000002 to step-000000001" in caplog.text
    with pytest.raises(CheckpointError):
        verify(tmp_path / "step-000000002")


@given(at=st.integers(0, 10**6), bits=st.integers(1, 255), which=st.sampled_from(["__0_0.distcp", ".metadata"]))
def test_no_changed_byte_of_the_data_passes(
    at: int, bits: int, which: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    checkpoints = Checkpoints(tmp_path_factory.mktemp("c"))
    path = save(checkpoints, 1) / which
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= bits
    path.write_bytes(content)

    assert checkpoints.latest() is None


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 5, 12):
        save(checkpoints, step)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000005", "step-000000012"]
    with pytest.raises(ValueError, match="keep=0"):
        Checkpoints(tmp_path, keep=0)


def test_a_run_that_went_back_may_save_the_same_step_again(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 4, b"first")

    path = save(checkpoints, 4, b"second")

    assert (path / "__0_0.distcp").read_bytes() == b"second"
    assert [each.name for each in tmp_path.iterdir()] == ["step-000000004"]


def test_a_part_that_never_came_keeps_the_checkpoint_incomplete(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    directory = checkpoints.open(3)
    (directory / "a").write_bytes(b"1")
    sealed = seal(directory, ["a"])
    (directory / "b").write_bytes(b"2")

    with pytest.raises(CheckpointError, match="b: not in the manifest"):
        checkpoints.complete(3, 2, sealed)
    with pytest.raises(FileNotFoundError):
        seal(directory, ["c"])
    assert checkpoints.latest() is None


def test_a_manifest_reads_as_written(tmp_path: Path) -> None:
    manifest = read_manifest(save(Checkpoints(tmp_path), 7))

    assert manifest.step == 7
    assert manifest.files["__0_0.distcp"].bytes == 7
