from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocabulary.driver_log.kmsg_record import KmsgError, KmsgRecord, parse_record

NVRM = b"4,362,34101472,c;NVRM: Xid (PCI:0000:00:06): 31, pid=461, name=bad, channel 0x0000000a\n"


def test_a_record_of_the_driver() -> None:
    record = parse_record(NVRM)
    assert record == KmsgRecord(
        facility=0,
        level=4,
        seq=362,
        usec=34101472,
        flags="c",
        text="NVRM: Xid (PCI:0000:00:06): 31, pid=461, name=bad, channel 0x0000000a",
    )


def test_facility_fields_escapes_and_a_caller() -> None:
    record = parse_record(
        b"12,7,9,-,caller=T42;caf\\xc3\\xa9 \\x5c tab\\x09\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n"
    )
    assert (record.facility, record.level, record.text) == (1, 4, "café \\ tab\t")
    assert record.fields == {"SUBSYSTEM": "pci", "DEVICE": "+pci:0000:3b:00.0"}


@pytest.mark.parametrize("flags", ["-", "c", "+"])
def test_every_flag_is_read(flags: str) -> None:
    assert parse_record(f"6,1,2,{flags};hello\n".encode()).flags == flags


@pytest.mark.parametrize("data", [b"", b"hello", b"6,1,2;x", b"-6,1,2,-;x", b"6,1,2,-", b"a,b,c,d;e"])
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(KmsgError, match="not a kernel record"):
        parse_record(data)


@given(st.binary(max_size=200))
def test_no_bytes_crash_it(data: bytes) -> None:
    for record in (data, b"6,1,2,-;" + data, b"6,1,2,-;x\n " + data):
        try:
            parse_record(record)
        except KmsgError:
            continue


@given(st.text(alphabet=st.characters(exclude_characters="\n\\", exclude_categories=["Cs"])), st.integers(0, 191))
def test_text_and_facility_come_back(text: str, prio: int) -> None:
    record = parse_record(f"{prio},5,6,-;{text}\n".encode())
    assert (record.facility, record.level, record.text) == (prio // 8, prio % 8, text)
