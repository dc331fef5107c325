"""Where a page cannot be, and what is no page: one warning for the rank, the file and the field for a reader."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from healthd.trainer.beacons import beacon_page
from healthd.trainer.beacons.beacon import (
    Beacon,
    BeaconError,
    MailboxOrder,
    NullBeacon,
    RankPlacement,
    open_beacon,
    page_name,
    read_all_pages,
    read_page,
)
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.mailbox import post_order
from vocabulary.clock import ManualClock

PLACE = RankPlacement("job-7", 1, 3, 8, local_rank=3, node="n1")
ORDER = MailboxOrder("o1", "checkpoint_then_eject", "row remap pending", ("n1",), 2e9)
NOBODY = 65534


@pytest.fixture
def directory(tmp_path: Path) -> str:
    place = tmp_path / "beacons"
    prepare_directory(str(place))
    return str(place)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def beacon(directory: str, clock: ManualClock) -> Iterator[Beacon]:
    made = Beacon.create(directory, PLACE, clock)
    yield made
    made.close()


def in_child(code: str, *, check: bool = True, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """Run code in another process: one that dies, is another user, or has no disk space."""
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, **kwargs)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    "content", [b"", b"rubbish", bytes(beacon_page.PAGE_BYTES), b"gpu-hlth\x01".ljust(98304, b"\0")]
)
def test_a_page_that_nobody_can_read_is_replaced(
    directory: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(directory) / page_name(PLACE.job, PLACE.attempt, PLACE.rank)
    path.write_bytes(content)

    beacon = open_beacon(directory, PLACE)

    assert read_page(str(path)).alive
    assert caplog.records == []
    beacon.close()


def test_a_page_of_another_version_says_which(beacon: Beacon) -> None:
    content = bytearray(Path(beacon.path).read_bytes())
    content[8] = 1
    Path(beacon.path).write_bytes(content)

    for attempt in (lambda: read_page(beacon.path), lambda: post_order(beacon.path, ORDER)):
        with pytest.raises(BeaconError, match="version: is 1, this program reads version 2; upgrade the older side"):
            attempt()


def test_what_cannot_be_trusted_is_refused_by_file_and_field(beacon: Beacon, directory: str) -> None:
    place = Path(directory)
    (place / "link.beacon").symlink_to(beacon.path)
    (place / "short.beacon").write_bytes(b"x")
    (place / "short.beacon").chmod(0o600)
    (place / "folder.beacon").mkdir()
    os.mkfifo(place / "pipe.beacon", 0o600)
    (place / "open.beacon").write_bytes(Path(beacon.path).read_bytes())
    (place / "open.beacon").chmod(0o666)
    (place / "version.beacon").touch(0o600)
    (place / "version.beacon").write_bytes(
        Path(beacon.path).read_bytes()[:8] + b"\x09" + bytes(beacon_page.PAGE_BYTES - 9)
    )

    views, errors = read_all_pages(directory)

    assert [view.path for view in views] == [beacon.path]
    found = {Path(error.path).name: error.field for error in errors}
    assert found == {
        "folder.beacon": "file",
        "link.beacon": "file",
        "open.beacon": "mode",
        "pipe.beacon": "file",
        "short.beacon": "size",
        "version.beacon": "version",
    }
    for error in errors:
        assert error.path in str(error)
        with pytest.raises(BeaconError):
            post_order(error.path, ORDER)
    os.link(beacon.path, place / "hard.link")
    with pytest.raises(BeaconError, match="2 hard links"):
        read_page(beacon.path)


def test_a_missing_directory_costs_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nothing = open_beacon(str(tmp_path / "absent"), PLACE)
    nothing.begin_step(1)
    nothing.end_step()

    assert isinstance(nothing, NullBeacon)
    assert nothing.poll() is nothing.mailbox().poll() is None
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "is healthd running on this node?" in record.message


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_directory_that_others_may_change_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)

    with pytest.raises(BeaconError, match="sticky"):
        Beacon.create(str(tmp_path), PLACE)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two users")
def test_a_read_only_directory_costs_one_warning_and_a_strangers_page_none() -> None:
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        strange, read_only = _as_nobody(Path(parent) / "beacons")

    assert (strange.stdout, strange.stderr) == ("Beacon\n", "")
    assert read_only.stdout == "NullBeacon\n"
    assert read_only.stderr.count("training continues") == 1


def _as_nobody(place: Path) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    prepare_directory(str(place))
    Beacon.create(str(place), PLACE).close()
    code = f"""
        import os
        from healthd.trainer.beacons.beacon import open_beacon, RankPlacement
        os.setuid({NOBODY})
        beacon = open_beacon({str(place)!r}, RankPlacement("job-7", 1, 3, 8, 3, "n1"))
        beacon.begin_step(0); beacon.end_step()
        print(type(beacon).__name__)
    """
    strange = in_child(code)
    place.chmod(0o755)
    return strange, in_child(code)


def test_a_full_tmpfs_costs_one_warning_and_leaves_nothing_behind(directory: str) -> None:
    done = in_child(
        f"""
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        from healthd.trainer.beacons.beacon import open_beacon, RankPlacement
        print(type(open_beacon({directory!r}, RankPlacement("job-7", 1, 3, 8, 3, "n1"))).__name__)
        """
    )

    assert done.stdout == "NullBeacon\n"
    assert done.stderr.count("training continues") == 1
    assert os.strerror(errno.EFBIG) in done.stderr
    assert list(Path(directory).iterdir()) == []
