"""Another user's process must not order a rank, and a page must not make its reader believe what is not so."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from healthd.trainer.beacons import beacon_page
from healthd.trainer.beacons.beacon import (
    Beacon,
    BeaconError,
    MailboxOrder,
    RankPlacement,
    open_beacon,
    read_all_pages,
    read_page,
)
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.beacons.page_reader import process_start

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two users")

NOBODY = 65534
PLACE = RankPlacement("job-7", 1, 3, 8, 3, "n1")
ORDER = MailboxOrder("o1", "abort", "because I say so", (), 2e9)


@pytest.fixture
def directory() -> Iterator[str]:
    """Where any user may go; pytest's own directories are closed to others."""
    done = subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True)
    parent = Path(done.stdout.strip())
    parent.chmod(0o755)
    prepare_directory(str(parent / "beacons"))
    yield str(parent / "beacons")
    subprocess.run(["rm", "-r", "--", str(parent)], check=True)


@pytest.fixture
def beacon(directory: str) -> Iterator[Beacon]:
    made = Beacon.create(directory, PLACE)
    yield made
    made.close()


def as_nobody(deed: Callable[[], object]) -> str:
    """Do it as another user, in a process of its own: the name of the exception it ended with, or nothing."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            deed()
        except BaseException as error:  # noqa: BLE001 - told to the parent
            said = f"{type(error).__name__}: {error}"
        os.write(sink, said.encode())
        os._exit(0)
    os.close(sink)
    os.waitpid(child, 0)
    with os.fdopen(source, "rb") as told:
        return told.read().decode()


def written(path: str, at: int, block: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    os.pwrite(descriptor, block, at)


FORGED = beacon_page.pack_frame("mailbox", 1, ORDER._asdict(), beacon_page.MAILBOX_BYTES)


@pytest.mark.parametrize(
    "deed",
    [
        lambda path: post_order(path, ORDER),
        lambda path: written(path, beacon_page.MAILBOX_AT, FORGED),
        read_page,
        os.unlink,
        lambda path: Path(path).rename(path + ".gone"),
        lambda path: os.truncate(path, 0),
        lambda path: Path(path).chmod(0o644),
        lambda path: os.link(path, path + ".link"),
    ],
    ids=["post", "write", "read", "delete", "rename", "truncate", "open up", "link"],
)
def test_another_user_gets_nowhere_with_a_page(beacon: Beacon, deed: Callable[[str], object]) -> None:
    problem = as_nobody(lambda: deed(beacon.path))

    assert problem.startswith(("PermissionError", "BeaconError"))
    assert beacon.poll() is None
    assert read_page(beacon.path).order is None


def test_an_order_in_a_page_that_was_opened_up_is_not_followed(
    beacon: Beacon, caplog: pytest.LogCaptureFixture
) -> None:
    Path(beacon.path).chmod(0o666)
    assert as_nobody(lambda: written(beacon.path, beacon_page.MAILBOX_AT, FORGED)) == ""

    assert [beacon.poll(), beacon.poll()] == [None, None]
    Path(beacon.path).chmod(0o600)
    assert beacon.poll() is None, "not believed later, either"
    assert len(caplog.records) == 1
    assert "mode" in caplog.text or "lets other users write" in caplog.text

    post_order(beacon.path, ORDER._replace(id="o2"))
    order = beacon.poll()
    assert order is not None
    assert order.id == "o2"


def test_an_order_in_a_page_that_was_given_away_is_not_followed(
    beacon: Beacon, caplog: pytest.LogCaptureFixture
) -> None:
    os.chown(beacon.path, NOBODY, -1)
    assert as_nobody(lambda: written(beacon.path, beacon_page.MAILBOX_AT, FORGED)) == ""

    assert beacon.poll() is None
    assert f"the page belongs to user {NOBODY} now" in caplog.text
    with pytest.raises(BeaconError, match=f"the file is user {NOBODY}'s, but pid {os.getpid()} runs as 0"):
        post_order(beacon.path, ORDER)


def test_a_page_that_names_another_users_process_is_refused(directory: str) -> None:
    """Nobody's page says that it is this very process, which is root's."""
    pid, started = os.getpid(), process_start(os.getpid())
    assert started is not None

    def forge() -> None:
        forged = Beacon.create(directory, PLACE)
        identity = beacon_page.Identity("job-7", 1, 3, 8, 3, "n1", pid, started, 1.0)
        frame = beacon_page.pack_frame("identity", 2, identity._asdict(), beacon_page.IDENTITY_BYTES)
        written(forged.path, beacon_page.IDENTITY_AT, frame)

    assert as_nobody(forge) == ""
    views, errors = read_all_pages(directory)

    assert views == []
    assert [error.field for error in errors] == ["owner"]
    with pytest.raises(BeaconError, match="owner"):
        post_order(errors[0].path, ORDER)


def test_a_rank_does_without_a_page_where_another_user_rules(directory: str, caplog: pytest.LogCaptureFixture) -> None:
    os.chown(directory, NOBODY, -1)

    beacon = open_beacon(directory, PLACE)

    assert beacon.path == ""
    assert len(caplog.records) == 1
    assert f"belongs to user {NOBODY}, who could replace pages" in caplog.text
