"""How dmesg, journald, syslog and kmsg dress a kernel record, and who wrote it.

Each shows the same text behind another prefix. Where the prefix names the author, only the kernel counts: a program
that logs a quotation of a kernel line is no witness.
"""

from __future__ import annotations

import re

_FACILITIES = "kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7]"
_KMSG = re.compile(r"(?P<prio>\d{1,5}),\d{1,20},\d{1,20},[^;\s]{0,80};")
_SYSLOG_PRIORITY = re.compile(r"<(?P<prio>\d{1,5})>")
_DECODED = re.compile(rf"(?P<facility>{_FACILITIES})\s*:\s*\w{{3,6}}\s*:\s*")
_DMESG = re.compile(r"\s{0,8}\[\s{0,12}\d{1,12}\.\d{3,9}\](?:\s?\[\s{0,8}[TC]\d{1,10}\])?\s?")
_CTIME = re.compile(r"\[\S{1,12}\s+\S{1,12}\s+\d{1,2}\s\d\d:\d\d:\d\d\s\d{4}\](?:\s?\[\s{0,8}[TC]\d{1,10}\])?\s?")
_DAY = r"\S{1,12}\s{1,2}\d{1,2}\s\d\d:\d\d:\d\d(?:\.\d{1,9})?"
_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_LOGGED = re.compile(
    rf"(?:{_DAY}|{_ISO})\s+(?P<host>[^\s:\[\]]{{1,255}})\s+(?P<ident>[^\s:\[\]]{{1,64}})(?:\[\d{{1,10}}\])?:\s?"
)
_BARE_ISO = re.compile(rf"{_ISO}\s")


def kernel_text(line: str) -> str | None:
    """The text of a kernel record without what its transport put in front; None if another program wrote the line.

    A line whose prefix names no author is taken for the kernel's: the caller then knows where it read it.

    >>> kernel_text("Mar  4 12:00:00 n1 kernel: [  117.984502] NVRM: loading")
    'NVRM: loading'
    >>> kernel_text("Mar  4 12:00:00 n1 app[77]: NVRM: loading") is None
    True
    """
    if match := _KMSG.match(line) or _SYSLOG_PRIORITY.match(line):
        if int(match["prio"]) >> 3 != 0:
            return None
        line = line[match.end() :]
    if match := _DECODED.match(line):
        if match["facility"] != "kern":
            return None
        line = line[match.end() :]
    if match := _LOGGED.match(line):
        if match["ident"] != "kernel":
            return None
        line = line[match.end() :]
    elif match := _BARE_ISO.match(line):
        line = line[match.end() :]
    if match := _DMESG.match(line) or _CTIME.match(line):
        line = line[match.end() :]
    return line


def host_of(line: str) -> str | None:
    """The host that a syslog line names; None if it names none.

    >>> host_of("Mar  4 12:00:00 n1 kernel: [  117.984502] NVRM: loading")
    'n1'
    """
    priority = _SYSLOG_PRIORITY.match(line)
    match = _LOGGED.match(line, priority.end() if priority else 0)
    return match["host"] if match else None
