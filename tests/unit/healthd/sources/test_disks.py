from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.checks.disk_checks import DisksCheck, Limits
from healthd.collectors.disks import Disk, DisksSample, read_disks
from healthd.collectors.machine_access import MachineAccess, SourceAbsent
from healthd.findings.facts import Moment, Raise, Unknown
from vocabulary.hardware.mount_table import parse_mount_table

Build = Callable[[Mapping[str, str]], MachineAccess]
GIB = 1 << 30
LIMITS = Limits(free_percent=5, free_bytes=20 * GIB, inodes_free_percent=5, raise_after_s=60, clear_after_s=60)
MOUNTS = (
    "/dev/nvme0n1p2 / ext4 rw,relatime 0 0\n"
    "/dev/nvme0n1p2 /var/lib/bind ext4 rw 0 0\n"
    "/dev/md0 /local\\040scratch xfs ro 0 0\n"
    "tmpfs /dev/shm tmpfs rw 0 0\n"
    "tmpfs /run/user/0 tmpfs rw 0 0\n"
    "proc /proc proc rw 0 0\n"
    "server:/home /home nfs4 rw 0 0\n"
    "cut short\n"
)


def disk(free_bytes: int | None = 500 * GIB, *, read_only: bool = False, inodes_free: int = 900) -> DisksSample:
    return DisksSample((Disk("/", "/dev/sda1", "ext4", read_only, 1000 * GIB, free_bytes, 1000, inodes_free),))


def codes(check: DisksCheck, sample: DisksSample, at: float) -> list[str]:
    return [fact.code for fact in check.judge(sample, Moment(0, at)) if isinstance(fact, Raise)]


def test_local_file_systems_are_read_once_each(machine: Build) -> None:
    found = read_disks(machine({"/proc/1/mounts": MOUNTS, "/dev/shm/x": "", "/local scratch/x": ""}), {}).disks
    assert [(d.mount, d.read_only, d.size_bytes is not None) for d in found] == [
        ("/", False, True),
        ("/local scratch", True, True),
        ("/dev/shm", False, True),
    ]


def test_our_own_table_serves_where_the_first_cannot_be_read(machine: Build) -> None:
    assert read_disks(machine({"/proc/self/mounts": MOUNTS}), {}).disks[0].mount == "/"


def test_no_table_is_a_state(machine: Build) -> None:
    with pytest.raises(SourceAbsent):
        read_disks(machine({}), {})


@given(st.text())
def test_any_table_can_be_read(text: str) -> None:
    assert all(len(line) == 4 for line in parse_mount_table(text))


def test_a_full_disk_is_a_warning_once_it_lasts() -> None:
    check = DisksCheck(LIMITS)
    assert [codes(check, disk(GIB), at) for at in (0, 59, 60)] == [[], [], ["full"]]
    assert codes(check, disk(500 * GIB), 125) == []


def test_five_percent_of_a_great_disk_is_plenty() -> None:
    check = DisksCheck(LIMITS)
    assert [codes(check, disk(40 * GIB), at) for at in (0, 100)] == [[], []]


def test_running_out_of_files_is_seen() -> None:
    check = DisksCheck(LIMITS)
    assert [codes(check, disk(inodes_free=1), at) for at in (0, 60)] == [[], ["files"]]


def test_a_disk_that_turns_read_only_takes_no_new_work() -> None:
    check = DisksCheck(LIMITS)
    codes(check, disk(), 0)
    assert codes(check, disk(read_only=True), 10) == ["read_only"]
    assert codes(check, disk(), 20) == []


def test_one_that_always_was_is_so_by_design_and_keeps_what_was_said_before_a_restart() -> None:
    facts = DisksCheck(LIMITS).judge(disk(read_only=True), Moment(0, 0))
    assert [fact.code for fact in facts if isinstance(fact, Unknown)] == ["full", "files", "read_only"]


def test_room_that_cannot_be_read_is_unknown() -> None:
    assert isinstance(DisksCheck(LIMITS).judge(disk(None), Moment(0, 0))[0], Unknown)
