from __future__ import annotations

from pathlib import Path

import pytest

from preflight.host.kernel_xids import LINES_MAX, KernelXidReader, is_driver_record
from vocabulary.driver_log.kmsg_record import parse_record
from vocabulary.driver_log.xid_line import format_xid

XID = format_xid(48, "0000:3b:00.0", detail="Double Bit ECC Error")


def add_records(log: Path, *records: str) -> None:
    with log.open("a") as file:
        file.writelines(f"{record}\n" for record in records)


def test_only_the_drivers_lines_after_the_first_reading_count(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    add_records(log, f"4,10,5,-;{XID}")
    reader = KernelXidReader(log)
    first = reader.read(None)
    assert (first.lines, first.position, first.unreadable) == ((), 10, "")
    add_records(log, "6,11,6,-;usb 1-1: new device", f"4,12,7,c;{XID}", " SUBSYSTEM=pci", "no record at all")
    second = reader.read(first.position)
    assert (second.lines, second.position) == ((XID,), 12)
    assert reader.read(second.position).lines == ()
    reader.close()


def test_a_new_process_continues_where_the_last_one_was(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    add_records(log, f"4,10,5,-;{XID}", f"4,11,5,-;{XID} again")
    assert KernelXidReader(log).read(10).lines == (f"{XID} again",)


def test_an_empty_log_hides_nothing(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.touch()
    reader = KernelXidReader(log)
    position = reader.read(None).position
    add_records(log, f"4,0,5,-;{XID}")
    assert reader.read(position).lines == (XID,)


def test_what_a_program_wrote_is_not_the_drivers() -> None:
    assert is_driver_record(parse_record(f"4,10,5,-;{XID}".encode()))
    assert not is_driver_record(parse_record(f"12,10,5,-;{XID}".encode()))  # facility 1: user
    assert not is_driver_record(parse_record(f"4,10,5,+;{XID}".encode()))  # the rest of another line


def test_a_name_that_a_user_chose_is_not_the_drivers(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    add_records(log, "6,10,5,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=", f"6,11,5,c;{XID}")
    assert KernelXidReader(log).read(9).lines == ()
    add_records(log, f"4,12,6,-;{XID}")
    assert KernelXidReader(log).read(9).lines == (XID,)


def test_an_unreadable_log_says_why(tmp_path: Path) -> None:
    reading = KernelXidReader(tmp_path / "none").read(7)
    assert (reading.lines, reading.position) == ((), 7)
    assert reading.unreadable == f"{tmp_path / 'none'}: No such file or directory"


def test_a_log_that_may_not_be_read_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.open", refuse)
    assert KernelXidReader().read(None).unreadable == "/dev/kmsg: Operation not permitted"


def test_a_flood_of_lines_is_cut(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    add_records(log, *(f"4,{number},5,-;{XID}" for number in range(3 * LINES_MAX)))
    reading = KernelXidReader(log).read(-1)
    assert (len(reading.lines), reading.position) == (LINES_MAX, 3 * LINES_MAX - 1)
