"""Readers of a replaced file see the old content or the new one, whatever crashes, fills the disk, or is planted there."""

from __future__ import annotations

import errno
import gzip
import os
import resource
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.orders.evidence_files import EvidenceFiles
from preflight.baseline_files import BaselineError, write_baseline_file
from preflight.expectations.fleet_baseline import Baseline
from remediator.schedulers.local_scheduler import LocalScheduler
from vocabulary.atomic_file import UNFINISHED, replace_file, sync_directory
from vocabulary.clock import ManualClock

OLD, NEW = b"old" * 100, b"new" * 1000
DURABLE = {"sync_content": True, "sync_name": True}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "state.json"
    path.write_bytes(OLD)
    return path


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """No file of this process grows beyond `room` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@given(contents=st.lists(st.binary(max_size=300), min_size=1, max_size=5))
def test_the_last_content_stays_and_nothing_beside_it(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("written") / "file"
    for content in contents:
        replace_file(path, content)
        assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
@pytest.mark.parametrize("mode", [0o600, 0o644, None])
def test_permissions_are_exact_or_left_to_the_umask(file: Path, umask: int, mode: int | None) -> None:
    file.chmod(0o777)
    before = os.umask(umask)
    try:
        replace_file(file, NEW, mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == (0o666 & ~umask if mode is None else mode)


@pytest.mark.parametrize("last", ["os.fchmod", "os.fsync", "pathlib.Path.replace"])
def test_after_a_crash_before_the_rename_the_old_content_stays_and_the_next_writer_succeeds(
    file: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    if (child := os.fork()) == 0:
        monkeypatch.setattr(last, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        replace_file(file, NEW, mode=0o600, sync_content=True, sync_name=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert file.read_bytes() == OLD
    (left_over,) = (path for path in file.parent.iterdir() if path != file)
    assert left_over.name.endswith(UNFINISHED)
    replace_file(file, NEW)
    assert file.read_bytes() == NEW


def test_evidence_left_over_by_a_crash_is_removed_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = EvidenceFiles(tmp_path)
    files.write("complete", gzip.compress(OLD))
    if (child := os.fork()) == 0:
        monkeypatch.setattr("pathlib.Path.replace", lambda *_: os._exit(9))
        files.write("killed", gzip.compress(NEW))
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 2
    assert EvidenceFiles(tmp_path).read("complete")
    assert list(tmp_path.iterdir()) == [files.path("complete")]


def test_content_is_on_disk_before_the_rename_and_the_rename_at_the_end(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[bool, bytes]] = []
    monkeypatch.setattr(
        os, "fsync", lambda number: synced.append((stat.S_ISDIR(os.fstat(number).st_mode), file.read_bytes()))
    )
    replace_file(file, NEW, **DURABLE)
    assert synced == [(False, OLD), (True, NEW)]


def test_a_link_planted_under_the_new_files_name_is_neither_followed_nor_removed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    planted, victim = tmp_path / f".{file.name}.{bytes(8).hex()}{UNFINISHED}", tmp_path / "victim"
    planted.symlink_to(victim)
    with pytest.raises(FileExistsError) as refused:
        replace_file(file, NEW)
    assert refused.value.filename == str(file)
    assert (file.read_bytes(), victim.exists(), planted.is_symlink()) == (OLD, False, True)


def test_nobody_can_foresee_the_new_files_name(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = set()
    monkeypatch.setattr(Path, "replace", lambda aside, _: names.add(aside.name))
    for _ in range(20):
        replace_file(file, NEW)
    assert len(names) == 20


def test_a_link_at_the_path_itself_is_replaced(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    replace_file(link, NEW)
    assert (link.is_symlink(), file.read_bytes()) == (False, OLD)


@pytest.mark.parametrize("room", [0, 1, 2999])
def test_on_a_full_disk_the_old_file_stays_and_the_error_names_it(file: Path, room: int) -> None:
    with full_disk(room), pytest.raises(OSError, match=str(file)) as refused:
        replace_file(file, NEW, **DURABLE)
    assert refused.value.errno == errno.EFBIG
    assert file.read_bytes() == OLD
    assert list(file.parent.iterdir()) == [file]


def test_a_disk_that_is_full_only_at_the_sync_counts_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match=rf"No space left on device: '{file}'"):
        replace_file(file, NEW, sync_content=True)
    assert file.read_bytes() == OLD


def test_writers_say_which_file_and_what_to_do_on_a_full_disk(tmp_path: Path) -> None:
    holds = tmp_path / "holds.json"
    with full_disk(1):
        outcome = LocalScheduler(holds, ManualClock()).cordon("n1", "gpu-healthd: broken")
        with pytest.raises(BaselineError, match=f"{tmp_path / 'baseline.json'}: cannot be written: .*; free space"):
            write_baseline_file(tmp_path / "baseline.json", Baseline())
    assert outcome.detail.startswith(f"cannot write {holds}: ")
    assert outcome.detail.endswith("; free space or fix the folder's permissions")
    assert not holds.exists()


@pytest.mark.parametrize(("error", "raised"), [(errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)])
def test_a_file_system_may_refuse_to_sync_a_folder_but_a_failing_disk_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, *, raised: bool
) -> None:
    def refuse(_: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "fsync", refuse)
    if raised:
        with pytest.raises(OSError, match="Input/output"):
            sync_directory(tmp_path)
    else:
        sync_directory(tmp_path)
