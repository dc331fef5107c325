from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from vocabulary.driver_log.injected_line import parse_injected_line
from vocabulary.driver_log.xid_line import parse_live_record

Run = Callable[..., Result]
XID = ("inject", "xid", "--node", "n1", "--pci", "0000:3b:00.0")


def test_each_line_is_appended_to_a_followed_file_and_reads_back(healthctl: Run, tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    log.touch()
    assert healthctl(*XID, "--code", "63", "--to", str(log)).exit_code == 0
    assert healthctl(*XID, "--code", "79", "--pid", "7", "--process", "py", "--to", str(log)).exit_code == 0
    marked = [parse_injected_line(line) for line in log.read_text().splitlines()]
    assert [found.node for found in marked if found] == ["n1", "n1"]
    events = [parse_live_record(found.text) for found in marked if found]
    assert [(e.code, e.pci, e.pid, e.process) for e in events if e] == [
        (63, "0000:3b:00.0", None, ""),
        (79, "0000:3b:00.0", 7, "py"),
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--code", "79", "--node", "a b"], "not a node name"),
        (["--code", "79", "--pci", "zz"], "not a PCI address"),
        (["--code", "79", "--process", "py"], "--process needs --pid"),
        (["--code", "79", "--pid", "1", "--process", "sixteen bytes ee"], "longer than the kernel's 15 bytes"),
        (["--code", "79", "--detail", "a\nb"], "line break"),
        (["--code", "79", "--detail", "x" * 1000], "shorten it"),
        (["--code", "-1"], "-1"),
        (["--code", "many"], "many"),
    ],
)
def test_what_cannot_be_a_line_is_refused_and_nothing_is_written(
    healthctl: Run, tmp_path: Path, arguments: list[str], says: str
) -> None:
    log = tmp_path / "kern.log"
    log.touch()
    done = healthctl(*XID, *arguments, "--to", str(log))
    assert done.exit_code == 2
    assert says in done.stderr
    assert log.read_text() == ""


def test_a_place_that_cannot_be_written_is_named(healthctl: Run, tmp_path: Path) -> None:
    done = healthctl(*XID, "--code", "79", "--to", str(tmp_path / "none"))
    assert done.exit_code == 3
    assert f"{tmp_path / 'none'}: cannot be written" in done.stderr


@pytest.mark.kmsg
@pytest.mark.skipif(not os.access("/dev/kmsg", os.W_OK), reason="/dev/kmsg cannot be written here")
def test_more_lines_than_one_open_file_may_write_all_arrive(healthctl: Run) -> None:
    reader = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.lseek(reader, 0, os.SEEK_END)
        words = [f"healthctl test {secrets.token_hex(8)}" for _ in range(30)]
        for word in words:
            assert healthctl(*XID, "--code", "13", "--detail", word).exit_code == 0
        seen = b""
        try:
            while True:
                seen += os.read(reader, 8192)
        except BlockingIOError:
            pass
    finally:
        os.close(reader)
    assert [word for word in words if word.encode() not in seen] == []
