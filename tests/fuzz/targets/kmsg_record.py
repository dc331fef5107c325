"""Records of /dev/kmsg: any process writes them, with a facility of its own."""

from __future__ import annotations

from tests.fuzz.target import Target
from vocabulary.driver_log.kmsg_record import KmsgError, parse_record


def judge(data: bytes) -> None:
    """A record or its own error; a record's numbers are what stands in the line."""
    try:
        record = parse_record(data)
    except KmsgError:
        return
    head = f"{record.facility << 3 | record.level},{record.seq},{record.usec},-;".encode()
    again = parse_record(head + b"x")
    if (again.facility, again.level, again.seq, again.usec) != (record.facility, record.level, record.seq, record.usec):
        raise AssertionError("the numbers of a record do not come back")


TARGET = Target(
    judge,
    (
        b"4,362,34101472,c;NVRM: Xid (PCI:0000:00:06): 31, pid=461, name=bad, channel 0x0000000a\n",
        b"12,7,9,-,caller=T42;caf\\xc3\\xa9 \\x5c tab\\x09\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n",
        b"6,1,2,+;rest of a line\n",
    ),
)
