from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.vocabulary.xid_lines import PROBE, details, lines, names, pcis, plain_details, texts
from vocabulary.driver_log.xid_line import KernelEventKind, format_xid, parse_live_record

LIVE = [
    "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (0000:02:00): 13, 0003 00000000 000085c0 00000364 00000000 00000100",
    "NVRM: Xid (PCI:0000:07:00 GPU-I:05 GPU-CI:00): 31, pid=90, name=nvc:[driver], Ch 00000002",
    "NVRM: Xid (PCI:00000000:07:00.0): 46",
    "nvidia 0000:07:00.0: NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.",
    "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.",
    "NVRM: GPU at 0000:01:00.0 has fallen off the bus.",
    "NVRM: GPU at PCI:0000:01:00 has fallen off the bus.",
    "NVRM: GPU has fallen off the bus.",
    "NVRM: fallen off the bus and is not responding to commands.",
    "nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
    "nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 12028, Data {0x00140004, 0x00100000, 0x00140004, 0x00000000}",
]
OFFLINE_ONLY = [
    "NVRM: Xid:  13, Channel 00000001",  # of 2005, without an address
    "NVRM: Xid: 79, ",  # the same, as a task's name
    "NVRM: Xid(a):79",
    "NVRM: Xid (PCI:not-an-address): 79, GPU has fallen off the bus.",
    "NVRM: Xid (0001:00): 13, 0001 00000000 00000597",
    "SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "SXid(a):20034",
    "some driver was speaking, NVRM: Xid (PCI:0000:07:00): 62, pid=100, name=glued, 0c8b(2f40)",
    "[  117.984502] NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.",
    "Mar  4 12:00:00 n1 kernel: NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.",
    "4,362,34101472,c;NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.",
    " NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.",
    "\nNVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.",
]


@pytest.mark.parametrize("record", LIVE)
def test_what_drivers_print_today_is_read(record: str) -> None:
    event = parse_live_record(record)
    assert event is not None
    assert event.pci or event.kind is KernelEventKind.FALLEN_OFF_BUS


@pytest.mark.parametrize("record", OFFLINE_ONLY)
def test_what_only_a_log_for_people_holds_is_not(record: str) -> None:
    assert parse_live_record(record) is None


@pytest.mark.parametrize("line", [*lines("near_misses.log"), *lines("unsaid.log")])
def test_a_near_miss_is_no_event(line: str) -> None:
    assert parse_live_record(line) is None


def test_the_probe_message_may_span_three_lines_of_one_record() -> None:
    event = parse_live_record(PROBE)
    assert event is not None
    assert (event.kind, event.pci) == (KernelEventKind.FALLEN_OFF_BUS, "0000:65:00.0")


@given(
    code=st.integers(0, 99_999),
    pci=pcis,
    pid=st.integers(0, 4_194_304),
    name=names,
    detail=plain_details,
)
@example(code=43, pci="0000:07:00.0", pid=7, name="NVRM: Xid (PCI:", detail="x")
@example(code=43, pci="0000:07:00.0", pid=7, name=")):79,'\"[1]:", detail="NVRM: Xid (PCI:0000:01:00): 79, y")
def test_what_is_printed_is_what_is_read(code: int, pci: str, pid: int, name: str, detail: str) -> None:
    event = parse_live_record(format_xid(code, pci, pid=pid, process=name, detail=detail))
    assert event is not None
    assert (event.code, event.pci, event.pid, event.process, event.detail) == (code, pci, pid, name, detail)


@given(code=st.integers(0, 99_999), pci=pcis, detail=details.filter(lambda text: not text.startswith("pid=")))
def test_a_line_without_a_client_round_trips(code: int, pci: str, detail: str) -> None:
    event = parse_live_record(format_xid(code, pci, detail=detail))
    assert event is not None
    assert (event.code, event.pci, event.pid, event.detail) == (code, pci, None, detail)


@given(texts)
def test_no_text_can_make_it_fail(text: str) -> None:
    event = parse_live_record(text)
    assert event is None or event.kind in KernelEventKind


def test_a_very_long_record_is_read_in_linear_time() -> None:
    line = "NVRM: Xid (" * 20_000 + "[1]: " * 20_000 + "NVRM: Xid (PCI:0000:07:00): 79, " + "x" * 1_000_000
    assert parse_live_record(line) is None
    assert parse_live_record("NVRM: Xid (PCI:0000:07:00): 79, " + "x" * 1_000_000) is not None
    assert parse_live_record("NVRM: The NVIDIA GPU 0000:65:00.0 " * 3_000) is None
