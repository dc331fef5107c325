"""A directory where any user leaves what he likes: looks stay cheap, and every user's files are read in their turn."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthd.collectors.beacons import BROKEN_AGAIN_S, BROKEN_PER_USER, KEPT_S, LATE_LOOKS, BeaconCollector
from healthd.daemon_status import Status
from healthd.telemetry.evidence_bundle import PAGES_MAX, RANKS_MAX, collect_evidence
from healthd.telemetry.telemetry_history import Telemetry
from healthd.trainer.beacons import beacon_directory as bounds
from healthd.trainer.beacons import beacon_page, page_reader
from healthd.trainer.beacons.beacon import Beacon, RankPlacement, open_beacon, page_name
from healthd.trainer.beacons.beacon_directory import (
    BeaconDirectory,
    DirectorySweep,
    PageFile,
    iterate_page_files,
    prepare_directory,
)
from healthd.trainer.beacons.page_reader import process_start, read_all_pages, read_page
from healthd.trainer.beacons.stack_socket import stack_socket_name

ALICE, BOB = 1001, 1002
NOW = 1e9
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two users")
HEADER = beacon_page.pack_header()


@pytest.fixture
def beacons() -> Iterator[Path]:
    """In memory, as in earnest."""
    done = subprocess.run(["mktemp", "-d", "-p", "/dev/shm"], capture_output=True, text=True, check=True)
    parent = Path(done.stdout.strip())
    prepare_directory(str(parent / "beacons"))
    yield parent / "beacons"
    subprocess.run(["rm", "-r", "--", str(parent)], check=True)


def leave(place: Path, count: int, uid: int = -1, head: bytes = b"") -> list[Path]:
    """Sparse files of the right size, which cost their owner next to nothing."""
    made = []
    for number in range(count):
        path = place / f"!{uid}.{number:06}.beacon"
        path.touch(0o600)
        if head:
            path.write_bytes(head)
        os.truncate(path, beacon_page.PAGE_BYTES)
        os.chown(path, uid, -1)
        made.append(path)
    return made


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are opened from now on."""
    opened: list[str] = []
    really = os.open

    def counted(path: str, flags: int, *more: int, **named: int) -> int:
        opened.append(str(path))
        return really(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", counted)
    return opened


def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


@NEEDS_ROOT
def test_another_users_rubbish_hides_no_rank_and_costs_a_reading_once(
    beacons: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(beacons, 1100, BOB)
    Beacon.create(str(beacons), RankPlacement("victim", 1, 0, 1)).close()
    collector, slept, opened = BeaconCollector(beacons), pauses(monkeypatch), reads(monkeypatch)

    looks = [collector.read(1e9 + n) for n in range(6)]

    assert [[rank.job for rank in look.ranks] for look in looks] == [["victim"]] * 6
    assert slept == [], "what is no page is not torn"
    assert sum("/!" in path for path in opened) == 1100, "each once"
    assert len(looks[-1].broken) == BROKEN_PER_USER
    collector.read(1e9 + 6 + BROKEN_AGAIN_S)
    assert sum("/!" in path for path in opened) == 1100 + bounds.READS_PER_USER, "tried again, his share at a time"


@NEEDS_ROOT
def test_torn_pages_wait_their_users_share_and_no_longer(beacons: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(beacons, 100, BOB, HEADER + b"\0" * (beacon_page.IDENTITY_AT - len(HEADER)) + b"torn" * 9)
    Beacon.create(str(beacons), RankPlacement("victim", 1, 0, 1)).close()
    slept = pauses(monkeypatch)

    sample = BeaconCollector(beacons).read(1e9)

    assert [rank.job for rank in sample.ranks] == ["victim"]
    assert len(slept) == page_reader.PATIENCE_PER_USER * (page_reader.READ_TRIES - 1)
    slept.clear()
    views, errors = read_all_pages(str(beacons))
    assert (len(views), len(errors), len(slept)) == (
        1,
        100,
        page_reader.PATIENCE_PER_USER * (page_reader.READ_TRIES - 1),
    )


@NEEDS_ROOT
def test_a_rank_starts_without_a_look_at_what_others_left(beacons: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(beacons, 300, BOB, HEADER)
    slept, opened = pauses(monkeypatch), reads(monkeypatch)

    beacon = open_beacon(str(beacons), RankPlacement("victim", 1, 0, 1))

    assert isinstance(beacon, Beacon)
    beacon.close()
    assert slept == []
    assert not [path for path in opened if "/!" in path]


def test_what_is_no_file_is_told_and_never_followed(beacons: Path) -> None:
    (beacons / "link.beacon").symlink_to("/proc/self/mounts")
    (beacons / "dangling.beacon").symlink_to(beacons / "nothing")
    os.mkfifo(beacons / "pipe.beacon", 0o600)
    (beacons / "folder.beacon").mkdir()
    sample = BeaconCollector(beacons).read(1e9)
    assert sorted(sample.broken) == ["dangling.beacon", "folder.beacon", "link.beacon", "pipe.beacon"]


def test_more_living_pages_than_any_user_has_are_told_of(beacons: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "READS_PER_USER", 2)
    ranks = [Beacon.create(str(beacons), RankPlacement("j", 1, rank, 3)) for rank in range(3)]
    collector = BeaconCollector(beacons)
    looks = [collector.read(1e9 + n) for n in range(LATE_LOOKS)]
    assert [len(look.ranks) for look in looks] == [2] * LATE_LOOKS
    assert (looks[-2].broken, list(looks[-1].broken)) == ({}, [f"user {os.geteuid()}"])
    for rank in ranks:
        rank.close()


def test_old_pages_of_the_dead_go_and_others_stay(beacons: Path) -> None:
    living = Beacon.create(str(beacons), RankPlacement("job-7", 1, 0, 1))
    code = f"from healthd.trainer.beacons.beacon import *; Beacon.create({str(beacons)!r}, RankPlacement('job-6', 1, 0, 1))"
    subprocess.run([sys.executable, "-c", code], check=True)
    dead = beacons / page_name("job-6", 1, 0)
    rubbish, aside = beacons / "rubbish.beacon", beacons / "x.beacon.1.tmp"
    rubbish.touch()
    aside.touch()
    started = process_start(os.getpid()) or 0
    used, unused = (beacons / stack_socket_name(os.getpid(), start) for start in (started, started + 1))
    for path in (used, unused):
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as server:
            server.bind(str(path))
    collector, now = BeaconCollector(beacons), time.time()

    for moment in (now, now + KEPT_S - 60):
        collector.read(moment)
        assert {path.name for path in beacons.iterdir()} == {
            Path(living.path).name,
            dead.name,
            rubbish.name,
            aside.name,
            used.name,
            unused.name,
        }
    collector.read(now + KEPT_S + 1)
    collector.read(now + KEPT_S + 2)

    assert set(beacons.iterdir()) == {Path(living.path), used}
    living.close()


def test_a_directory_that_is_not_there_or_no_directory_has_no_ranks(tmp_path: Path) -> None:
    assert BeaconCollector(tmp_path / "none").read(1e9).broken == {}
    (tmp_path / "file").touch()
    assert "Not a directory" in BeaconCollector(tmp_path / "file").read(1e9).broken["directory"]


@NEEDS_ROOT
def test_a_listing_too_long_for_one_look_goes_on_in_the_next(beacons: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "NAMES_PER_LOOK", 10)
    (mine,) = leave(beacons, 1, ALICE)
    leave(beacons, 95, BOB)
    directory, seen = BeaconDirectory(str(beacons)), set[PageFile]()
    looks: list[DirectorySweep] = []
    while not looks or not looks[-1].whole:
        looks.append(directory.look(seen))
        seen.update(looks[-1].due)
    assert len(looks) == 10
    assert max(len(look.due) for look in looks) == 10
    assert len(seen) == 96
    again = directory.look(seen)
    assert (again.due, len(again.settled), again.whole) == ([], 96, False), "what was found stays known"
    directory.close()
    mine.unlink()
    assert len(list(iterate_page_files(str(beacons)))) == 95


def test_a_file_that_changes_is_read_again_and_one_that_is_gone_forgotten(beacons: Path) -> None:
    one, other = leave(beacons, 2)
    directory = BeaconDirectory(str(beacons))
    seen = set(directory.look().due)
    assert directory.look(seen).due == []
    one.write_bytes(b"changed")
    assert [file.path for file in directory.look(seen).due] == [str(one)]
    other.unlink()
    assert directory.look(seen).names == {str(one)}


@NEEDS_ROOT
@given(
    counts=st.dictionaries(st.integers(1000, 1009), st.integers(1, 12), min_size=1),
    per_look=st.integers(1, 20),
    per_user=st.integers(1, 5),
)
@settings(max_examples=30, deadline=None)
def test_every_file_has_its_turn_and_no_user_two_before_anothers_first(
    tmp_path_factory: pytest.TempPathFactory, counts: dict[int, int], per_look: int, per_user: int
) -> None:
    place = tmp_path_factory.mktemp("shelf")
    for uid, count in counts.items():
        leave(place, count, uid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "READS_PER_LOOK", per_look)
        patch.setattr(bounds, "READS_PER_USER", per_user)
        directory, seen = BeaconDirectory(str(place)), set[PageFile]()
        for _ in range(sum(counts.values())):
            look = directory.look(seen)
            taken = [file.uid for file in look.due]
            assert len(taken) <= per_look
            waiting = {uid for uid, count in counts.items() if sum(f.uid == uid for f in seen) < count}
            assert all(taken.count(uid) <= per_user for uid in waiting)
            assert len(set(taken)) == min(len(waiting), per_look)
            assert not seen & set(look.due)
            seen.update(look.due)
        assert len(seen) == sum(counts.values())
        assert {*iterate_page_files(str(place))} == seen


@NEEDS_ROOT
def test_more_users_than_a_look_has_room_for_come_first_in_turn(beacons: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "READS_PER_LOOK", 2)
    for uid in range(1000, 1005):
        leave(beacons, 2, uid)
    directory = BeaconDirectory(str(beacons))
    turns = [[file.uid for file in directory.look().due] for _ in range(5)]
    assert sorted(uid for turn in turns for uid in turn) == sorted([*range(1000, 1005)] * 2)


@NEEDS_ROOT
def test_a_user_with_too_many_files_loses_his_own_oldest(beacons: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "NAMES_PER_USER_MAX", 8)
    leave(beacons, 1, ALICE)
    old = leave(beacons, 20, BOB)
    before = max(path.stat().st_ctime_ns for path in old)
    while (beacons / "clock").stat().st_ctime_ns <= before if (beacons / "clock").exists() else True:
        (beacons / "clock").touch()  # until the kernel's coarse clock has gone on
    for path in old[:3]:
        os.chown(path, BOB, -1)
    look = BeaconDirectory(str(beacons)).look()
    assert sum(file.uid == ALICE for file in look.due) == 1
    his = [file.path for file in look.due if file.uid == BOB]
    assert len(his) == 8
    assert set(his) >= set(map(str, old[:3])), "the newest are left"
    assert look.late == {BOB: 12}
    assert len(list(iterate_page_files(str(beacons)))) == 9, "and it ends"


@NEEDS_ROOT
def test_evidence_and_people_see_every_users_ranks(beacons: Path) -> None:
    code = f"from healthd.trainer.beacons.beacon import *; Beacon.create({str(beacons)!r}, RankPlacement('victim', 1, 0, 1))"
    subprocess.run([sys.executable, "-c", code], check=True)
    (mine,) = beacons.iterdir()
    content = mine.read_bytes()
    frame = beacon_page.pack_frame("identity", 1, read_page(str(mine)).identity._replace(job="rubbish")._asdict(), 4032)
    os.chown(mine, ALICE, -1)
    forged = bytearray(content)
    forged[beacon_page.IDENTITY_AT : beacon_page.IDENTITY_AT + len(frame)] = frame
    state = beacon_page.pack_checked(beacon_page.STATE.pack(1, 0, 1e18, 1e18, 0, 1, 0, 1))
    forged[beacon_page.STATE_AT : beacon_page.STATE_AT + len(state)] = state
    for path in leave(beacons, PAGES_MAX, BOB):
        path.write_bytes(forged)

    assert ALICE in {view.uid for view in read_all_pages(str(beacons))[0]}
    bundle = collect_evidence(Status(node="n1", boot_id="b", at=NOW), Telemetry(NOW, NOW - 900, None, (), ()), beacons)
    assert sorted(rank.job for rank in bundle.ranks) == ["rubbish"] * (RANKS_MAX - 1) + ["victim"]
