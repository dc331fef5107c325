"""What does not verify counts for nothing: it is not gone on from, not kept for a good one's sake, and nothing is linked to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.trainer.checkpoint import Checkpoints
from healthd.trainer.checkpoint_storage.checkpoint_files import (
    CheckpointError,
    FileEntry,
    FileWriter,
    verify_checkpoint,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def save(checkpoints: Checkpoints, step: int, *, link: bool = False) -> Path:
    writer = FileWriter(checkpoints.open(step), checkpoints.linkable() if link else None)
    with writer.create("a") as stream:
        stream.write(b"the same weights")
    return checkpoints.complete(step, 1, writer.entries)


def rot(path: Path) -> None:
    (path / "a").write_bytes(b"THE same weights")


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def steps(checkpoints: Checkpoints) -> list[str]:
    return [path.name for path in checkpoints.newest_first()]


def test_the_good_one_is_not_pushed_out_by_those_that_were_passed_over(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2, keep_every=100)
    for step in (99, 199, 299):
        path = save(checkpoints, step)
        if step > 99:
            rot(path)
    found = checkpoints.latest()
    assert found is not None
    assert found.manifest.step == 99
    assert names(tmp_path) == [
        "step-000000099",
        "step-000000199",
        "step-000000299",
    ]  # the reading may have been at fault

    save(checkpoints, 400)

    assert names(tmp_path) == [
        *(f"abandoned-step-000000{step}" for step in (199, 299)),
        "step-000000099",
        "step-000000400",
    ]
    rot(tmp_path / "step-000000400")
    found = checkpoints.latest()
    assert found is not None
    assert found.manifest.step == 99


def test_a_step_that_was_passed_over_may_be_saved_again(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)
    rot(save(checkpoints, 2))
    checkpoints.latest()

    save(checkpoints, 2)
    save(checkpoints, 3)

    assert steps(checkpoints) == ["step-000000003", "step-000000002", "step-000000001"]
    assert names(tmp_path)[0] == "abandoned-step-000000002"
    verify_checkpoint(tmp_path / "step-000000002")


def test_nothing_is_linked_to_one_that_was_passed_over(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)
    rot(save(checkpoints, 2))
    checkpoints.latest()

    verify_checkpoint(save(checkpoints, 3, link=True))
    assert (tmp_path / "step-000000003" / "a").samefile(tmp_path / "step-000000001" / "a")


def test_where_none_verifies_nobody_begins_anew_on_his_own(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        rot(save(checkpoints, step))
        (tmp_path / f"step-00000000{step}" / "manifest.json").unlink()

    with pytest.raises(
        CheckpointError, match=r"none of the 2 checkpoints can be loaded.*to train from the beginning, move"
    ):
        checkpoints.latest()
    assert steps(checkpoints) == ["step-000000002", "step-000000001"]


@pytest.mark.parametrize(
    "text",
    ['{"version":1,"step":1,"world":1,"files":{"a":{"bytes":1e999,"sha256":"0"}}}', '{"a":' * 100_000, "[" * 100_000],
)
def test_a_manifest_of_numbers_without_end_is_no_manifest(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        verify_checkpoint(tmp_path)


def test_a_checkpoint_under_another_steps_name_is_none(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)
    (tmp_path / "step-000000001").rename(tmp_path / "step-000000007")
    with pytest.raises(CheckpointError, match=r"manifest\.json: step: 1, but the directory is named step-000000007"):
        verify_checkpoint(tmp_path / "step-000000007")


@given(fields=st.dictionaries(st.sampled_from(["step", "world", "files", "x"]), JSON))
def test_no_document_gets_past_as_anything_but_a_manifest(
    fields: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("c")
    (place / "manifest.json").write_text(json.dumps({"version": 1} | fields))
    try:
        manifest = verify_checkpoint(place)
    except CheckpointError:
        return
    assert manifest.files == {}
    assert all(isinstance(entry, FileEntry) for entry in manifest.files.values())


def test_what_is_being_deleted_is_in_nobodys_way(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    save(checkpoints, 1)
    save(checkpoints, 2)
    (tmp_path / ".step-000000000.tmp").mkdir()

    checkpoints.open(3, sweeping=True)
    assert names(tmp_path) == [".step-000000001.gone", ".step-000000003.tmp", "step-000000002"]
    checkpoints.sweep()
    assert names(tmp_path) == [".step-000000003.tmp", "step-000000002"]
