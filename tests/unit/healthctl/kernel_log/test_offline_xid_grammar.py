from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from healthctl.kernel_log.offline_xid_grammar import parse_offline_line
from tests.unit.vocabulary.xid_lines import PROBE, details, lines, names, pcis, plain_details, texts
from vocabulary.driver_log.xid_line import KernelEventKind, format_xid


def test_every_generation_and_transport_is_read(golden: Callable[[str, str], None]) -> None:
    read = [
        msgspec.json.encode({"line": line, "event": parse_offline_line(line)}).decode() for line in lines("lines.log")
    ]
    golden("xid/lines.jsonl", "\n".join(read) + "\n")


@pytest.mark.parametrize("line", lines("lines.log"))
def test_no_line_of_the_corpus_is_missed(line: str) -> None:
    assert parse_offline_line(line) is not None


@pytest.mark.parametrize("line", lines("near_misses.log"))
def test_a_near_miss_is_no_event(line: str) -> None:
    assert parse_offline_line(line) is None


def test_the_probe_message_may_span_three_lines_of_one_record() -> None:
    event = parse_offline_line(PROBE)
    assert event is not None
    assert (event.kind, event.pci) == (KernelEventKind.FALLEN_OFF_BUS, "0000:65:00.0")


def test_what_cannot_be_read_is_kept_and_the_event_still_counts() -> None:
    event = parse_offline_line("NVRM: Xid (PCI:what:is:this): 79, GPU has fallen off the bus.")
    assert event is not None
    assert (event.code, event.pci) == (79, "")


@given(
    code=st.integers(0, 99_999),
    pci=pcis,
    pid=st.integers(0, 4_194_304),
    name=names,
    detail=plain_details,
    before=st.sampled_from(["", "[   12.345678] ", "Mar  4 12:00:00 n kernel: ", "glued text ", "4,1,2,-;"]),
)
@example(code=43, pci="0000:07:00.0", pid=7, name="NVRM: Xid (PCI:", detail="x", before="")
@example(
    code=43, pci="0000:07:00.0", pid=7, name=")):79,'\"[1]:", detail="NVRM: Xid (PCI:0000:01:00): 79, y", before=""
)
def test_what_is_printed_is_what_is_read(code: int, pci: str, pid: int, name: str, detail: str, before: str) -> None:
    event = parse_offline_line(before + format_xid(code, pci, pid=pid, process=name, detail=detail))
    assert event is not None
    assert (event.code, event.pci, event.pid, event.process, event.detail) == (code, pci, pid, name, detail)


@given(code=st.integers(0, 99_999), pci=pcis, detail=details.filter(lambda text: not text.startswith("pid=")))
def test_a_line_without_a_client_round_trips(code: int, pci: str, detail: str) -> None:
    event = parse_offline_line(format_xid(code, pci, detail=detail))
    assert event is not None
    assert (event.code, event.pci, event.pid, event.detail) == (code, pci, None, detail)


@given(texts)
def test_no_text_can_make_it_fail(text: str) -> None:
    event = parse_offline_line(text)
    assert event is None or event.kind in KernelEventKind


def test_a_very_long_record_is_read_in_linear_time() -> None:
    line = "NVRM: Xid (" * 20_000 + "[1]: " * 20_000 + "NVRM: Xid (PCI:0000:07:00): 79, " + "x" * 1_000_000
    assert parse_offline_line(line) is None  # it is quoted by a program's tag
    assert parse_offline_line("NVRM: The NVIDIA GPU 0000:65:00.0 " * 3_000) is None
