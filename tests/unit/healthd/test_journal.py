"""The journal as the kernel log: its entries, and a `journalctl` that a test plays."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.config import LogSource
from healthd.kernel_log.log_reader import KernelLogReader
from healthd.kernel_log.systemd_journal import LINE_BYTES_MAX, JournalEntry, JournalError, SystemdJournal, parse_entry
from healthd.samples.kernel_record import Cursor, KernelRecord
from vocabulary.clock import ManualClock

XID = "NVRM: Xid (PCI:0000:13:00): 79, pid=42, name=python3, GPU has fallen off the bus."


def entry(number: int, message: object = XID, **fields: object) -> str:
    kernel = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel"}
    cursor = f"s=0a1b;i={number:x};b=77;m=1;t=2;x=3"
    stamps = {"__CURSOR": cursor, "__REALTIME_TIMESTAMP": "1700000000500000", "__MONOTONIC_TIMESTAMP": "9"}
    return json.dumps(stamps | kernel | {"MESSAGE": message} | fields)


@pytest.mark.parametrize(
    ("fields", "facility"),
    [
        ({}, 0),
        ({"SYSLOG_FACILITY": "1"}, 1),
        ({"_TRANSPORT": "syslog"}, 1),
        ({"_TRANSPORT": "syslog", "SYSLOG_FACILITY": "3"}, 3),
        ({"SYSLOG_IDENTIFIER": "python3"}, 1),
        ({"SYSLOG_FACILITY": ["0", "1"]}, 0),
    ],
)
def test_only_what_the_kernel_wrote_itself_is_the_kernels(fields: dict[str, object], facility: int) -> None:
    assert parse_entry(entry(26, **fields).encode()).facility == facility


@pytest.mark.parametrize(
    ("message", "text"),
    [("a\nb", "a\nb"), ([65, 66, 255], "AB\ufffd"), (None, ""), ([300], ""), ({"a": 1}, "")],
)
def test_a_message_is_text_bytes_or_nothing(message: object, text: str) -> None:
    assert parse_entry(entry(26, message).encode()) == JournalEntry("journal-0a1b", 26, 1700000000.5, 0, text)


@given(
    st.binary(max_size=300)
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps).map(str.encode)
)
def test_any_line_is_an_entry_or_refused(line: bytes) -> None:
    with pytest.raises(JournalError):
        parse_entry(line)


@pytest.fixture
def journalctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A `journalctl` that prints these lines, then what a file gains, until it is ended."""

    def install(*lines: str, then: str = "exec tail -n +1 -f more") -> Path:
        more = tmp_path / "more"
        more.touch()
        (tmp_path / "lines").write_text("".join(f"{line}\n" for line in lines))
        program = tmp_path / "journalctl"
        program.write_text(f"#!/bin/sh\ncd {tmp_path}\ncat lines\n{then}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        return more

    return install


@pytest.fixture
def journal(journalctl: Callable[..., Path]) -> Iterator[Callable[..., SystemdJournal]]:
    """Opened journals; closed at the end."""
    opened: list[SystemdJournal] = []

    def make(*lines: str, cursor: Cursor | None = None) -> SystemdJournal:
        journalctl(*lines)
        opened.append(SystemdJournal(cursor))
        return opened[-1]

    yield make
    for each in opened:
        each.close(60)


def read(
    source: SystemdJournal | KernelLogReader, count: int, garbage: int = 0
) -> tuple[list[KernelRecord], list[str]]:
    """So many records and complaints, as they come."""
    records: list[KernelRecord] = []
    complaints: list[str] = []
    deadline = time.monotonic() + 90
    while (len(records) < count or len(complaints) < garbage) and time.monotonic() < deadline:
        batch = source.read(2)
        records += batch.records
        complaints += batch.garbage
    return records, complaints


def test_entries_become_records_in_order_and_go_on(
    journal: Callable[..., SystemdJournal], journalctl: Callable[..., Path]
) -> None:
    source = journal(entry(1), entry(2, "second"), entry(3, "third"))
    records, _ = read(source, 3)
    assert [(record.position, record.text) for record in records] == [(1, XID), (2, "second"), (3, "third")]
    more = journalctl()
    with more.open("a") as file:
        file.write(entry(4, "later") + "\n")
    assert read(source, 1)[0][0].text == "later"


def test_a_restart_goes_on_behind_what_was_read(journal: Callable[..., SystemdJournal]) -> None:
    lines = [entry(number, f"line {number}") for number in range(1, 6)]
    source = journal(*lines, cursor=Cursor("journal-0a1b", 3))
    assert [record.text for record in read(source, 2)[0]] == ["line 4", "line 5"]


def test_another_journal_begins_anew(journal: Callable[..., SystemdJournal]) -> None:
    source = journal(entry(1, "one"), cursor=Cursor("journal-ffff", 3))
    assert [record.text for record in read(source, 1)[0]] == ["one"]


def test_garbage_and_lines_without_end_are_said_and_passed_over(journal: Callable[..., SystemdJournal]) -> None:
    source = journal("garbage", entry(1, "x" * 3 * LINE_BYTES_MAX), entry(2, "good"))
    records, complaints = read(source, 1, garbage=2)
    assert records[-1].text == "good"
    assert any("not a journal entry" in complaint for complaint in complaints)


def test_a_journal_that_ends_is_trouble_and_is_started_again(journalctl: Callable[..., Path], tmp_path: Path) -> None:
    journalctl(entry(1, "one"), then="exit 3")
    clock = ManualClock()
    clock.advance(100)
    log = KernelLogReader(tmp_path / "kmsg", "boot", None, clock, means=LogSource.JOURNAL)
    deadline = time.monotonic() + 90
    texts: list[str] = []
    while time.monotonic() < deadline and not (texts and log.trouble):
        texts += [record.text for record in log.read(10).records]
    assert (texts, log.using) == (["one"], "")
    assert "journalctl has ended" in log.trouble
    journalctl(entry(1, "one"), entry(2, "two"))
    clock.advance(11)
    assert [record.text for record in read(log, 1)[0]] == ["two"]
    assert (log.trouble, log.using) == ("", "journal")
    log.close()


def test_without_a_journal_it_is_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    clock = ManualClock()
    clock.advance(100)
    log = KernelLogReader(tmp_path / "kmsg", "boot", None, clock, means=LogSource.JOURNAL)
    assert log.read(10).records == []
    assert "No such file" in log.trouble


def test_a_child_that_cannot_be_ended_is_not_waited_for(
    journalctl: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    journalctl(then="exec sleep 600")
    source = SystemdJournal(None)
    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "kill", lambda _: None)  # as for one that reads a dead disk
        source.close(0.01)
    assert source._child.poll() is None
    source.close(60)
    assert source._child.poll() == -signal.SIGKILL
