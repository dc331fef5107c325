"""The grammar of one line of a plain file that carries the kernel log. Pure, and strict: healthd acts on the result.

A line is bare, has dmesg's stamp, or is syslog's: a date (RFC 3164 or ISO 8601), a host, and ``kernel:``. Other formats
are for people, who parse them with `healthctl xid parse`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

USER_FACILITY = 1

_PRIORITY = re.compile(r"<(?P<prio>\d{1,5})>")
_STAMP = re.compile(r"\[\s{0,12}\d{1,12}\.\d{1,9}\](?:\[\s{0,8}[TC]\d{1,10}\])? ")
_DATED = re.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)"
    r" (?P<host>[^\s:\[\]]{1,255}) (?P<tag>[^\s:\[]{1,64}(?:\[\d{1,10}\])?):? ?"
)


class LogLine(NamedTuple):
    """A parsed line. `facility` is 0 if no author other than the kernel is named; `host` is empty if none is."""

    text: str
    facility: int
    host: str


def parse_log_line(line: str) -> LogLine:
    """Parse one line.

    >>> parse_log_line("Mar  4 12:00:00 n1 kernel: [  117.984502] NVRM: loading")
    LogLine(text='NVRM: loading', facility=0, host='n1')
    >>> parse_log_line("Mar  4 12:00:00 n1 app[77]: NVRM: loading").facility
    1
    """
    facility, host = 0, ""
    if match := _PRIORITY.match(line):
        facility = int(match["prio"]) >> 3
        line = line[match.end() :]
    if match := _DATED.match(line):
        host = match["host"]
        if match["tag"] != "kernel":
            return LogLine(line[match.end() :], facility or USER_FACILITY, host)
        line = line[match.end() :]
    if match := _STAMP.match(line):
        line = line[match.end() :]
    return LogLine(line, facility, host)
