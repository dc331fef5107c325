from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.trainer.checkpoint import Checkpoints
from healthd.trainer.checkpoint_storage.checkpoint_files import (
    CheckpointError,
    FileWriter,
    read_manifest,
    verify_checkpoint,
)


def save(checkpoints: Checkpoints, step: int, content: bytes = b"weights", *, link: bool = False) -> Path:
    writer = FileWriter(checkpoints.open(step), checkpoints.linkable() if link else None)
    for name, data in (("__0_0.distcp", content), ("__0_1.distcp", b"frozen"), (".metadata", b"%d" % step)):
        with writer.create(name) as stream:
            stream.write(data)
    path = checkpoints.complete(step, 1, writer.entries)
    checkpoints.sweep()
    return path


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_what_was_saved_is_the_latest(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "made" / "when needed")
    assert checkpoints.latest() is None

    save(checkpoints, 9)
    path = save(checkpoints, 10)

    found = checkpoints.latest()
    assert found is not None
    assert (found.path, found.manifest.step, found.manifest.world) == (path, 10, 1)
    assert set(found.manifest.files) == {"__0_0.distcp", "__0_1.distcp", ".metadata"}


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
        (lambda path: (path / "__0_0.distcp").write_bytes(b"wEights"), "__0_0.distcp: its blake3 checksum does not match the manifest"),
        (lambda path: (path / ".metadata").unlink(), ".metadata: missing"),
        (lambda path: (path / "manifest.json").unlink(), "manifest.json: No such file"),
        (lambda path: (path / "manifest.json").write_text('{"version": 1'), "manifest.json: not JSON"),
        (lambda path: (path / "manifest.json").write_text('{"version": 9}'), "manifest.json: version"),
        (lambda path: (path / "manifest.json").write_text('{"version": 1}'), "manifest.json: field missing or invalid: KeyError"),
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
        verify_checkpoint(tmp_path / "step-000000002")


@given(at=st.integers(0, 10**6), bits=st.integers(1, 255), which=st.sampled_from(["__0_0.distcp", ".metadata"]))
def test_no_changed_byte_of_the_data_passes(
    at: int, bits: int, which: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    checkpoints = Checkpoints(tmp_path_factory.mktemp("c"))
    path = save(checkpoints, 1) / which
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= bits
    path.write_bytes(content)

    with pytest.raises(CheckpointError, match="none of the 1 checkpoints can be loaded"):
        checkpoints.latest()


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


def test_after_going_back_the_new_course_is_the_latest_and_the_old_one_is_kept_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    (save(checkpoints, 100) / ".metadata").unlink()  # damaged: the run went back to an older one, and comes to 60

    with caplog.at_level(logging.WARNING):
        path = save(checkpoints, 60)

    found = checkpoints.latest()
    assert found is not None
    assert found.path == path
    assert names(tmp_path) == ["abandoned-step-000000100", "step-000000060"]
    assert "to a run that went back to step 60" in caplog.text
    save(checkpoints, 100)
    save(checkpoints, 70)
    assert names(tmp_path) == ["abandoned-step-000000100", "abandoned-step-000000100.2", "step-000000070"]


def test_of_what_was_set_aside_only_old_rubbish_is_deleted(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    for step in (3, 4, 5, 900):
        save(checkpoints, step).rename(tmp_path / f"abandoned-step-{step:09d}")
    (tmp_path / "abandoned-step-000000003" / "manifest.json").unlink()
    (tmp_path / "abandoned-step-000000004" / ".metadata").write_bytes(b"half")
    (tmp_path / "abandoned-step-000000900" / "manifest.json").unlink()
    for others in ("abandoned-step-7", "abandoned-step-000000001-mine", "abandoned"):
        (tmp_path / others).mkdir()

    save(checkpoints, 6)

    kept = ["abandoned", "abandoned-step-000000001-mine", "abandoned-step-000000005", "abandoned-step-000000900"]
    assert names(tmp_path) == [*kept, "abandoned-step-7", "step-000000006"]


def test_a_run_that_goes_back_loads_from_before_and_sets_the_rest_aside(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=9)
    for step in (10, 20, 30, 40):
        save(checkpoints, step)
    assert not checkpoints.going_back

    checkpoints.go_back(30)
    checkpoints.go_back(20)
    checkpoints.go_back(35)
    save(checkpoints, 50)  # was being written when the run was told

    again = Checkpoints(tmp_path, keep=9)
    assert again.going_back
    for _ in range(2):  # killed after the first look, and looks again
        assert [path.name for path in again.newest_first()] == ["step-000000010"]
    again.gone_back()
    again.gone_back()
    save(again, 30)
    found = again.latest()
    assert found is not None
    assert found.manifest.step == 30
    assert names(tmp_path) == [f"abandoned-step-0000000{step}" for step in (20, 30, 40, 50)] + [
        "step-000000010",
        "step-000000030",
    ]


@pytest.mark.parametrize("kept", [[], [7, 8]])
def test_a_run_with_nothing_to_go_back_to_says_so(tmp_path: Path, kept: list[int]) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in kept:
        save(checkpoints, step)

    with pytest.raises(CheckpointError, match="holds no checkpoint before step 7"):
        checkpoints.go_back(7)

    assert not checkpoints.going_back


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"before_step": "7"}', b"\xff", b"[" * 100_000])
def test_a_mark_that_cannot_be_read_stops_everything(tmp_path: Path, content: bytes) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 7)
    (tmp_path / "going-back.json").write_bytes(content)

    with pytest.raises(CheckpointError, match=r"going-back.json.*check which checkpoints are good"):
        checkpoints.newest_first()
    with pytest.raises(CheckpointError):
        checkpoints.go_back(9)


class Killed(BaseException):
    """What nobody catches."""


class Lives:
    """So many calls may be made; the next one kills."""

    def __init__(self, left: int) -> None:
        self.left = left

    def taking(self, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            if self.left == 0:
                raise Killed
            self.left -= 1
            return real(*args, **more)

        return call


def test_killed_anywhere_while_going_back_it_has_gone_back_or_was_not_told(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call that opens, syncs, renames or deletes is the last one, once."""
    seen = []
    for number in range(99):
        root, lives, told = tmp_path_factory.mktemp("c"), Lives(number), False
        checkpoints = Checkpoints(root, keep=9)
        for step in (10, 20, 30):
            save(checkpoints, step)
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            for name in ("rename", "replace", "unlink", "open"):
                patch.setattr(Path, name, lives.taking(getattr(Path, name)))
            patch.setattr("os.fsync", lives.taking(os.fsync))
            checkpoints.go_back(20)
            told = True
            Checkpoints(root).newest_first()
            checkpoints.gone_back()
        seen.append((told, Checkpoints(root, keep=9).newest_first()[0].name))
        if lives.left:
            break

    assert lives.left > 0, "the last one lived through all of it"
    assert set(seen) >= {(False, "step-000000030"), (True, "step-000000010")}
    assert (True, "step-000000030") not in seen


def test_a_part_that_never_came_keeps_the_checkpoint_incomplete(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    writer = FileWriter(checkpoints.open(3))
    with writer.create("a") as stream:
        stream.write(b"1")
    (writer.directory / "b").write_bytes(b"2")

    with pytest.raises(CheckpointError, match="b: not in the manifest"):
        checkpoints.complete(3, 2, writer.entries)
    assert checkpoints.latest() is None
    checkpoints.discard(3)
    assert names(tmp_path) == []


def test_every_nth_stays_beyond_the_newest(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1, keep_every=100)
    for step in (49, 99, 149, 199, 249):
        save(checkpoints, step)

    assert names(tmp_path) == ["step-000000099", "step-000000199", "step-000000249"]
    with pytest.raises(ValueError, match="keep_every=-1"):
        Checkpoints(tmp_path, keep_every=-1)


def test_a_crash_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 4).rename(tmp_path / ".step-000000004.old")

    found = checkpoints.latest()

    assert found is not None
    assert found.path == tmp_path / "step-000000004"


def test_a_checkpoint_being_deleted_never_comes_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 4).rename(tmp_path / ".step-000000004.gone")

    assert checkpoints.latest() is None
    save(checkpoints, 5)
    assert names(tmp_path) == ["step-000000005"]


def test_the_ranks_share_the_reading_and_together_read_all(tmp_path: Path) -> None:
    path = save(Checkpoints(tmp_path), 1)
    (path / "__0_1.distcp").write_bytes(b"frOzen")

    found = []
    for part in range(3):
        try:
            verify_checkpoint(path, part=part, parts=3)
        except CheckpointError as error:
            found.append(str(error))

    assert len(found) == 1
    assert "__0_1.distcp: its blake3" in found[0]


def test_what_did_not_change_is_linked_but_never_into_all_that_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    paths = [save(checkpoints, step, b"weights %d" % step, link=True) for step in range(4)]

    inodes = [(path / "__0_1.distcp").stat().st_ino for path in paths[1:]]
    assert len(set(inodes)) == 2  # three are kept, and two inodes hold the same bytes
    assert all(verify_checkpoint(path).files["__0_1.distcp"].bytes == 6 for path in paths[1:])
    for path in (tmp_path / name for name in names(tmp_path)):
        assert (path / "__0_0.distcp").stat().st_nlink == 1


def test_a_file_shared_with_the_newest_falls_back_to_one_of_its_own(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in range(3):
        save(checkpoints, step, link=True)
    (tmp_path / "step-000000002" / "__0_1.distcp").write_bytes(b"rotten")  # in place: all that share it see it

    assert checkpoints.latest() is not None


def test_nothing_is_linked_where_one_bad_file_could_take_all(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.linkable() == {}
    path = save(checkpoints, 1)
    assert checkpoints.linkable() == {}
    checkpoints.keep = 3
    assert len(checkpoints.linkable()) == 3
    (path / "__0_1.distcp").write_bytes(b"short")
    assert checkpoints.linkable() == {}


def test_a_write_that_fails_inside_a_library_is_still_told(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path)
    (tmp_path / "a").symlink_to("/dev/full")

    def save_by_a_library() -> None:
        with writer.create("a") as stream:
            stream.write(bytes(1 << 20))
            stream.write(b"more")
            raise ValueError("what a library makes of it")

    with pytest.raises(OSError, match=r"No space left on device.*/a'"):
        save_by_a_library()
    assert writer.entries == {}


def test_a_mistake_of_the_caller_is_not_hidden(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mine"), FileWriter(tmp_path).create("a"):
        raise ValueError("mine")


def test_a_manifest_reads_as_written(tmp_path: Path) -> None:
    manifest = read_manifest(save(Checkpoints(tmp_path), 7))

    assert manifest.step == 7
    assert manifest.files["__0_0.distcp"].bytes == 7
