"""Lines of `journalctl -o json`: what any process logs comes through here."""

from __future__ import annotations

from healthd.kernel_log.systemd_journal import JournalError, parse_entry
from tests.fuzz.target import Target


def judge(data: bytes) -> None:
    """An entry or its own error; only the kernel's transport and name make facility 0."""
    try:
        entry = parse_entry(data)
    except JournalError:
        return
    if entry.facility == 0 and b"kernel" not in data and b"\\u" not in data:
        raise AssertionError("a line that does not name the kernel passes for its word")


TARGET = Target(
    judge,
    (
        (
            b'{"__CURSOR":"s=ab;i=1f;b=0;m=0;t=0;x=0","__REALTIME_TIMESTAMP":"1700000000000000","_TRANSPORT":"kernel",'
            b'"SYSLOG_FACILITY":"0","SYSLOG_IDENTIFIER":"kernel","MESSAGE":"NVRM: Xid (PCI:0000:00:06): 79, x"}'
        ),
        b'{"__CURSOR":"s=ab;i=1;","_TRANSPORT":"syslog","SYSLOG_FACILITY":"1","MESSAGE":[104,105]}',
        b'{"__CURSOR":"s=ab;i=1;","__REALTIME_TIMESTAMP":"1e3","MESSAGE":null}',
        b'{"__CURSOR":"s=ab;i=1;","SYSLOG_FACILITY":"' + b"9" * 5000 + b'"}',
    ),
)
