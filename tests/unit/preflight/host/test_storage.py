"""The test of storage on real file systems: the one of temporary files, small ones of memory, read-only and full ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.check_context import Context
from preflight.checks import storage
from preflight.checks.storage import (
    PATHS_VARIABLE,
    DiskSpace,
    StorageMeasurement,
    compute_percentile,
    explain_lack_of_space,
    find_mount,
    is_mounted_read_only,
)
from preflight.host.host_patterns import Words
from preflight.host.scratch_file import ScratchFile
from preflight.results import Outcome, Result
from vocabulary.hardware.mount_table import Mount

GIB = 1 << 30


def results(fault: str = "", seconds: float = 0.2) -> list[Result]:
    return list(
        storage.check_storage(
            Context(device=None, devices=(), level="gate", seconds=seconds, fault=fault, note=lambda _: None)
        )
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(PATHS_VARIABLE, str(tmp_path))
    return tmp_path


def test_a_good_disk_passes_with_every_rate_and_nothing_is_left_on_it(folder: Path) -> None:
    (result,) = results()
    assert result.outcome is Outcome.PASS, result.reason
    names = [figure.name for figure in result.figures]
    assert names == ["storage_write_rate", "storage_read_rate", "storage_sync_p99", "storage_read_p99"]
    assert all(figure.value > 0 for figure in result.figures)
    assert int(result.evidence["bytes"]) >= storage.BLOCK_BYTES
    assert list(folder.iterdir()) == []


def test_one_wrong_bit_on_the_disk_is_found(folder: Path) -> None:
    (result,) = results("wrong_bytes")
    assert result.outcome is Outcome.FAIL
    assert "1 words differ from those written" in result.reason
    assert result.locations[0].path == str(folder)


@pytest.mark.parametrize("fault", ["", "wrong_bytes"])
def test_without_time_a_quarter_is_read_all_the_same_blocks_by_chance_and_that_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    places: set[int] = set()
    read = ScratchFile.read

    def noted(file: ScratchFile, into: Words, offset: int) -> float:
        if into.nbytes == storage.BLOCK_BYTES:
            places.add(offset)
        return read(file, into, offset)

    monkeypatch.setattr(ScratchFile, "read", noted)
    monkeypatch.setattr(storage._StorageRun, "_until", lambda _, share: share == storage._WRITING)
    monkeypatch.setitem(storage.BYTES_MAX, "gate", 8 * storage.BLOCK_BYTES)
    runs = [results(fault)[0] for _ in range(12)]
    assert {(run.evidence["bytes"], run.evidence["bytes_verified"]) for run in runs} == {(8 << 22, 2 << 22)}
    assert all("the time limit allowed 25 % of the written data" in run.remarks[-1] for run in runs)
    assert {run.outcome for run in runs} == {Outcome.FAIL if fault else Outcome.PASS}
    assert len(places) > 2


def test_a_slow_disk_shows_in_its_rate(folder: Path) -> None:
    def writing(fault: str) -> float:
        return results(fault)[0].figures[0].value

    assert min(writing("slow") for _ in range(2)) < max(
        writing("") for _ in range(3)
    )  # ten times, and what else runs here


def test_each_folder_has_a_result_and_one_that_is_not_there_is_for_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(PATHS_VARIABLE, f"{tmp_path}:{tmp_path}/none:{tmp_path}/file")
    good, absent, file = results()
    assert good.outcome is Outcome.PASS
    assert (absent.outcome, absent.misconfigured) == (Outcome.NOT_RUN, True)
    assert f"{tmp_path}/none: No such file or directory; mount or create it" in absent.reason
    assert (file.outcome, file.misconfigured) == (Outcome.NOT_RUN, True)


def test_a_full_disk_in_the_midst_of_writing_fails_by_name(folder: Path) -> None:
    (result,) = results("full")
    assert result.outcome is Outcome.FAIL
    assert f"{folder}: No space left on device" in result.reason


TRY = """
import msgspec, sys
from preflight.checks import storage
from preflight.check_context import Context
storage.FREE_SHARE_MAX = float(sys.argv[1])
context = Context(device=None, devices=(), level="gate", seconds=0.2, fault="", note=lambda _: None)
sys.stdout.buffer.write(msgspec.json.encode(list(storage.check_storage(context))))
"""


def mounted(folder: Path, options: str, prepare: str, share: float) -> Result:
    """The result for a file system of memory, mounted with `options` in a namespace of its own."""
    script = f'mount -t tmpfs -o {options} tmpfs "$0" && cd "$0" && {prepare} && cd / && exec "$@"'
    command = ["sh", "-c", script, str(folder), sys.executable, "-c", TRY, str(share)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4]), PATHS_VARIABLE: str(folder)}
    for namespace in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode == 0:
            done = subprocess.run([*namespace, *command], env=environment, capture_output=True, check=True, timeout=60)
            (result,) = msgspec.json.decode(done.stdout, type=list[Result])
            return result
    pytest.skip("this user may not mount in a namespace of its own")


def test_a_file_system_that_became_read_only_fails(tmp_path: Path) -> None:
    other = 'mkdir "$0-other" && mount --bind "$0" "$0-other" && mount -o remount,ro "$0-other"'  # as after an error
    result = mounted(tmp_path, "size=64m", other, 0.1)
    assert result.outcome is Outcome.FAIL
    assert "Read-only file system; the kernel remounts read-only after errors" in result.reason


@pytest.mark.parametrize(
    "by_hand", ['mount -o remount,ro "$0"', 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"']
)
def test_a_folder_that_a_person_mounted_read_only_is_for_a_person(tmp_path: Path, by_hand: str) -> None:
    result = mounted(tmp_path, "size=64m", by_hand, 0.1)
    assert (result.outcome, result.misconfigured) == (Outcome.NOT_RUN, True)
    assert "Read-only file system; it is mounted read-only: mount it for writing" in result.reason


def test_a_file_system_without_room_or_files_fails_before_anything_is_written(tmp_path: Path) -> None:
    full = mounted(tmp_path, "size=8m", "true", 0.1)
    assert full.outcome is Outcome.PASS, full.reason
    assert any("is in memory (tmpfs)" in remark for remark in full.remarks)
    full = mounted(tmp_path, "size=8m", "head -c 6m /dev/zero > old || head -c 6000000 /dev/zero > old", 0.1)
    assert full.outcome is Outcome.FAIL
    assert "are free; remove files left by old jobs" in full.reason
    files = mounted(tmp_path, "size=64m,nr_inodes=2", "touch a", 0.1)
    assert files.outcome is Outcome.FAIL
    assert "0 of 2 files can still be created" in files.reason


def test_a_disk_that_fills_up_while_we_write_fails(tmp_path: Path) -> None:
    result = mounted(tmp_path, "size=10m", "true", 5.0)
    assert result.outcome is Outcome.FAIL
    assert "No space left on device; it is full" in result.reason


@pytest.mark.parametrize("nameless", [True, False])
def test_a_killed_test_leaves_nothing(tmp_path: Path, *, nameless: bool) -> None:
    program = (
        "import sys, time, pathlib\n"
        "from preflight.host import scratch_file\n"
        "opened = scratch_file.ScratchFile if sys.argv[2] == 'True' else scratch_file._create_and_unlink\n"
        "file = opened(pathlib.Path(sys.argv[1]))\n"
        "print('open', flush=True)\n"
        "time.sleep(600)\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path), str(nameless)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=Path(__file__).parents[4]) as process:
        assert process.stdout
        assert process.stdout.readline() == b"open\n"
        process.send_signal(signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("space", "full"),
    [
        (DiskSpace(100 * GIB, 50 * GIB, 0, 0), False),
        (DiskSpace(100 * GIB, GIB // 2, 0, 0), True),
        (DiskSpace(100 * GIB, 50 * GIB, 1000, 500), False),
        (DiskSpace(100 * GIB, 50 * GIB, 1000, 9), True),
    ],
)
def test_too_little_room_is_a_fault(space: DiskSpace, *, full: bool) -> None:
    assert bool(explain_lack_of_space(space)) is full


def test_a_file_system_that_cannot_be_read_directly_is_said_so(tmp_path: Path) -> None:
    measured = StorageMeasurement(False, 1, 1.0, 1, 1.0, (0.5,), (), 0, ())
    result = storage.judge_storage(tmp_path, Mount("fs:/", "/fs", "nfs4", ("rw",)), DiskSpace(GIB, GIB, 0, 0), measured)
    assert result.figures[0].setting == "/fs, 4 MiB, buffered"
    assert "may have come from the page cache" in result.remarks[0]


MOUNTS = "/dev/a / ext4 rw 0 0\nfs:/x /data nfs4 ro,hard 0 0\n/dev/b /data\\040set xfs rw 0 0\ntmpfs /data tmpfs rw 0 0\nbad\n"


@pytest.mark.parametrize(
    ("path", "point", "kind"),
    [
        ("/data/7", "/data", "tmpfs"),
        ("/data", "/data", "tmpfs"),
        ("/data set/x", "/data set", "xfs"),
        ("/database", "/", "ext4"),
    ],
)
def test_a_path_belongs_to_the_last_and_deepest_mount(path: str, point: str, kind: str) -> None:
    mount = find_mount(path, MOUNTS)
    assert mount is not None
    assert (mount.point, mount.type) == (point, kind)
    assert find_mount(path, "") is None


MOUNTINFO = (
    "24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/a ro,errors=remount-ro\n"
    "30 24 0:5 / /data\\040set ro,nosuid - nfs fs:/x rw\nbad\n"
)


@pytest.mark.parametrize(("path", "by_hand"), [("/", False), ("/data", False), ("/data set/x", True)])
def test_the_kernel_leaves_the_options_of_a_mount_alone(path: str, *, by_hand: bool) -> None:
    assert is_mounted_read_only(path, MOUNTINFO) is by_hand
    assert not is_mounted_read_only(path, "")


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_percentile_is_one_of_the_values_and_grows(values: list[float]) -> None:
    found = [compute_percentile(values, percent) for percent in (1, 50, 99, 100)]
    assert found == sorted(found)
    assert set(found) <= set(values)
    assert found[-1] == max(values)
    assert 100 * sum(value <= found[2] for value in values) >= 99 * len(values)
