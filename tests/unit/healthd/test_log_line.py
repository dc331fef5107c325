"""A line of a followed file: who wrote it, on which host, and what the kernel said."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.kernel_log.log_file import LogFile, LogLine, parse_log_line
from vocabulary.clock import ManualClock

XID = "NVRM: Xid (PCI:0000:13:00): 79, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("prefix", "host"),
    [
        ("", ""),
        ("[  117.984502] ", ""),
        ("[  117.984502][ T1946] ", ""),
        ("<4>[  117.984502] ", ""),
        ("Mar  4 12:00:00 n1 kernel: ", "n1"),
        ("Mar 14 12:00:00 n1 kernel: [  117.984502] ", "n1"),
        ("2025-03-04T12:00:00.123456+00:00 n1.cluster.example kernel: ", "n1.cluster.example"),
        ("2025-03-04T12:00:00Z n1 kernel: [  117.984502] ", "n1"),
        ("<6>Mar  4 12:00:00 n1 kernel: ", "n1"),
    ],
)
def test_the_prefixes_of_kernel_log_files_are_taken_off(prefix: str, host: str) -> None:
    assert parse_log_line(prefix + XID) == LogLine(XID, 0, host)


@pytest.mark.parametrize(
    "prefix",
    [
        "Mar  4 12:00:00 n1 app[77]: ",
        "Mar  4 12:00:00 n1 app: ",
        "Mar  4 12:00:00 n1 kernel[31337]: ",
        "Mar  4 12:00:00 n1 kernel-watch: ",
        "2025-03-04T12:00:00Z n1 python3[7]: ",
        "<12>",
        "<12>Mar  4 12:00:00 n1 kernel: ",
    ],
)
def test_another_author_is_no_kernel(prefix: str) -> None:
    line = parse_log_line(prefix + XID)
    assert line.facility != 0
    assert line.text == XID, "a marked test fault may come this way"


@pytest.mark.parametrize(
    "prefix", ["watcher: ", "> ", "4,1,1,-;", "kern  :warn  : [ 1.5] ", "[Tue Mar  4 12:00:00 2025] ", "[0]: ", "\n"]
)
def test_other_dresses_are_left_on_and_say_nothing(prefix: str) -> None:
    assert not parse_log_line(prefix + XID).text.startswith("NVRM")


@given(st.text(max_size=200))
def test_any_line_can_be_read(text: str) -> None:
    assert text.endswith(parse_log_line(text).text)


def test_a_line_of_a_file_is_attested_only_where_the_site_says_so(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_text(f"Mar  4 12:00:00 n1 kernel: {XID}\n{XID}\nMar  4 12:00:00 n1 app[7]: {XID}\n")
    log = LogFile(path, None, ManualClock())
    found = [(record.facility, record.attested, record.text) for record in log.read(9).records]
    log.close()
    assert found == [(0, False, XID), (0, False, XID), (1, False, XID)]
    trusted = LogFile(path, None, ManualClock(), trusted=True)
    assert [record.attested for record in trusted.read(9).records] == [True, True, True]
    trusted.close()
