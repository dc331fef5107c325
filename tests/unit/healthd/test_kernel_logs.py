"""The two kinds of kernel log: what is read, from where, after what."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.config import LogSource
from healthd.kernel_log.kmsg_device import KmsgDevice
from healthd.kernel_log.log_file import LogFile
from healthd.kernel_log.log_reader import KernelLogReader
from healthd.samples.kernel_record import Cursor
from vocabulary.clock import ManualClock, SystemClock

CLOCK = ManualClock()
needs_kmsg = [
    pytest.mark.kmsg,
    pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="/dev/kmsg cannot be read here"),
]


def texts(log: LogFile, limit: int = 1000) -> list[str]:
    found: list[str] = []
    while True:
        batch = log.read(limit)
        found += [record.text for record in batch.records]
        if not batch.more:
            return found


def test_whole_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_bytes(b"one\ntwo\nthr")
    log = LogFile(path, None, CLOCK)
    assert texts(log) == ["one", "two"]
    with path.open("ab") as file:
        file.write(b"ee\n\xff\n")
    assert texts(log) == ["three", "\ufffd"]
    log.close()


def test_a_cursor_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_text("one\ntwo\n")
    first = LogFile(path, None, CLOCK)
    cursor = first.read(1).cursor
    first.close()
    second = LogFile(path, cursor, CLOCK)
    assert texts(second) == ["two"]
    second.close()


def test_rotation_while_it_looks_and_while_it_does_not(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_text("one\ntwo\n")
    log = LogFile(path, None, CLOCK)
    cursor = log.read(1).cursor
    path.rename(tmp_path / "kern.log.1")
    path.write_text("three\n")
    assert texts(log) == ["two", "three"]
    log.close()
    later = LogFile(path, cursor, CLOCK)
    assert texts(later) == ["two", "three"], "the rest of the old file first, found under its new name"
    later.close()


def test_truncation_and_a_file_that_comes_later(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    log = LogFile(path, None, CLOCK)
    assert texts(log) == []
    path.write_text("one\ntwo\n")
    assert texts(log) == ["one", "two"]
    with path.open("r+") as file:
        file.truncate(0)
        file.write("new\n")
    assert texts(log) == ["new"]
    log.close()


def test_a_line_without_end_is_skipped_and_said(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_bytes(b"x" * (1 << 18) + b"\nafter\n")
    log = LogFile(path, None, CLOCK)
    batch = log.read(10)
    assert "no line end" in batch.garbage[0]
    assert texts(log) == ["", "after"]
    log.close()


@given(
    st.lists(st.text(alphabet="abc", max_size=5), max_size=20), st.integers(1, 7), st.lists(st.booleans(), max_size=30)
)
def test_wherever_it_is_interrupted_every_line_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], limit: int, restarts: list[bool]
) -> None:
    path = tmp_path_factory.mktemp("log") / "kern.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    log, found, cursor = LogFile(path, None, CLOCK), [], None
    for restart in [*restarts, *[False] * 25]:
        batch = log.read(limit)
        if restart:  # killed before the batch was durable
            log.close()
            log = LogFile(path, cursor, CLOCK)
            continue
        cursor = batch.cursor
        found += [record.text for record in batch.records]
    log.close()
    assert found == lines


@pytest.mark.kmsg
@needs_kmsg[1]
def test_the_kernels_own_log_is_read_from_its_start_and_resumed() -> None:
    first = KmsgDevice(Path("/dev/kmsg"), "boot-1", None, SystemClock())
    batch = first.read(20)
    first.close()
    positions = [record.position for record in batch.records]
    assert positions == sorted(positions)
    assert len(positions) == 20
    assert all(record.source == "boot-1" and record.at <= SystemClock().wall() for record in batch.records)
    middle = Cursor("boot-1", positions[9])
    second = KmsgDevice(Path("/dev/kmsg"), "boot-1", middle, SystemClock())
    assert [record.position for record in second.read(20).records][:10] == positions[10:]
    second.close()
    other_boot = KmsgDevice(Path("/dev/kmsg"), "boot-2", middle, SystemClock())
    assert other_boot.read(1).records[0].position == positions[0]
    other_boot.close()


@pytest.mark.kmsg
@needs_kmsg[1]
def test_a_cursor_the_ring_has_left_behind_is_a_gap() -> None:
    oldest = KmsgDevice(Path("/dev/kmsg"), "boot-1", None, SystemClock())
    first = oldest.read(1).records[0].position
    oldest.close()
    for lost in (0, 1, 5):
        log = KmsgDevice(Path("/dev/kmsg"), "boot-1", Cursor("boot-1", first - 1 - lost), SystemClock())
        batch = log.read(1)
        log.close()
        assert [gap.lost for gap in batch.gaps] == ([lost] if lost else [])


def test_a_log_that_cannot_be_opened_is_trouble_and_tried_again(tmp_path: Path) -> None:
    clock = ManualClock()
    clock.advance(100)
    path = tmp_path / "kern.log"
    path.mkdir()
    log = KernelLogReader(path, "boot-1", None, clock)
    assert log.read(10).records == []
    assert "Is a directory" in log.trouble
    path.rmdir()
    path.write_text("one\n")
    assert log.read(10).records == [], "not at once"
    clock.advance(11)
    assert [record.text for record in log.read(10).records] == ["one"]
    assert log.trouble == ""
    log.close()


def test_lines_of_other_hosts_in_a_file_that_gathers_several_are_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    path.write_text(
        "Mar  4 12:00:00 n1 kernel: ours\n"
        "Mar  4 12:00:00 n2 kernel: theirs\n"
        "2025-03-04T12:00:00+00:00 N1.cluster.example kernel: ours too\n"
        "<6>Mar  4 12:00:00 n2 kernel: theirs again\n"
        "[  1.5] no host: ours\n"
    )
    log = LogFile(path, None, CLOCK, hosts=("n1.cluster.example",))
    assert [text.rpartition(": ")[2] for text in texts(log)] == ["ours", "ours too", "ours"]
    log.close()


def test_a_device_that_cannot_be_opened_is_trouble_unless_there_is_a_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    clock = ManualClock()
    clock.advance(100)
    log = KernelLogReader(tmp_path / "kmsg", "boot", None, clock, means=LogSource.KMSG)
    assert log.read(10).records == []
    assert "No such file" in log.trouble
    assert log.using == ""


def test_auto_takes_the_device_and_a_file_as_what_they_are(tmp_path: Path) -> None:
    clock = ManualClock()
    clock.advance(100)
    (tmp_path / "kern.log").write_text("one\n")
    log = KernelLogReader(tmp_path / "kern.log", "boot", None, clock)
    log.read(10)
    assert (log.using, log.source) == ("file", None)
    log.close()
