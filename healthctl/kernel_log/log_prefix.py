"""Removes the prefix that dmesg, journald, syslog, kmsg or Talos adds to a kernel record, and finds its author.

If the prefix names the author, only the kernel is trusted: a program that logs a copy of a kernel line is not an
evidence source.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple


class Author(enum.Enum):
    """The author named by a line's prefix. dmesg's stamp counts as the kernel, since only kernel records have it."""

    KERNEL = "kernel"
    UNNAMED = "unnamed"
    OTHER = "other"


class StrippedRecord(NamedTuple):
    """A record's `text` without its log prefix, and its `author` if the prefix names one."""

    text: str
    author: Author


_QUOTED = re.compile(r"\s{0,8}>")  # a mail's reply quotes another author
_OTHER = StrippedRecord("", Author.OTHER)
_FACILITIES = "kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7]"
_KMSG = re.compile(r"(?P<prio>\d{1,5}),\d{1,20},\d{1,20}(?:,[^;\s]{0,80})?;")
_SYSLOG_PRIORITY = re.compile(r"<(?P<prio>\d{1,5})>")
_DECODED = re.compile(rf"(?P<facility>{_FACILITIES})\s{{0,8}}:\s{{0,8}}\w{{3,6}}\s{{0,8}}:\s{{0,8}}")
_TALOS = re.compile(
    rf"(?:[\w.:-]{{1,255}}: )?(?P<facility>{_FACILITIES}): {{1,8}}\w{{3,9}}: \[\d{{4}}-\d\d-\d\dT[\d:.]{{8,20}}Z\]: ?"
)
_RFC5424 = re.compile(
    r"(?:<(?P<prio>\d{1,3})>)?1 (?:-|\d{4}-\d\d-\d\dT\S{8,24}) \S{1,255} (?P<app>\S{1,48}) \S{1,128} \S{1,32} "
    r'(?:-|(?:\[[^\]"]{1,200}(?:"(?:[^"\\]|\\.){0,2000}"[^\]"]{0,200}){0,32}\]){1,8})(?:\s{1,8}|$)\ufeff?'
)

_CALLER = r"(?:\s{0,2}\[\s{0,8}[TC]\d{1,10}\])?"
_SECONDS = r"\[\s{0,12}\+?\d{1,12}(?:\.\d{1,9})?(?:\s{0,4}<\s{0,12}[+\d.]{1,20}\s{0,4}>)?\]"
_CTIME = (
    r"\[\S{1,12}\s{1,4}\S{1,12}\s{1,4}\d{1,2}\s\d\d:\d\d:\d\d\s\d{4}(?:\s{0,4}<\s{0,12}[+\d.]{1,20}\s{0,4}>)?\]"
    r"|\[\S{1,12}\s{1,2}\d{1,2}\s\d\d:\d\d\]"  # the minute that dmesg -H prints once
)
# "[0]: text" is how a launcher labels the lines of its ranks.
_DMESG = re.compile(rf"\s{{0,80}}(?:{_SECONDS}|{_CTIME}){_CALLER}(?:\s|(?!:))")
_CONSOLE = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?\]\s?(?=\[)"
)  # from a console server, before dmesg's stamp

_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_ZONE = r"(?:Z|[+-]\d\d:?\d\d)"
_ZONE_NAME = r"(?:UTC|MSK|WI[BT]A?|(?!CRIT)[A-Z]{1,3}T)"  # a capital word after a date is mostly a level: INFO, WARN
_DATED = re.compile(
    rf"(?:(?:[A-Z]\w\w\s|\d{{4}}\s)?(?:[^\s\d\[<]\S{{0,11}}|\d{{1,2}}月)\s{{1,2}}\d{{1,2}}(?:\s\d{{4}})?\s{_CLOCK}(?:\s\d{{4}})?"
    rf"|(?P<kernels>\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{{6}}{_ZONE})"  # only dmesg writes a comma here
    rf"|(?:\S{{1,8}}\s)?\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:\s?{_ZONE}|\s{_ZONE_NAME}(?=\s)|\s[+-]\d\d)?"
    rf"|\[\d{{4}}-\d\d-\d\d[T ]{_CLOCK}{_ZONE}?\](?=\s(?:[\w.-]{{1,255}}\s)?kernel:\s)"  # without "kernel:" it is a program's own stamp
    rf"|\d{{9,11}}\.\d{{1,9}}"  # seconds since 1970
    rf"|{_CLOCK})(?:\s{{1,8}}|$)"
)
_HOST = r"(?:<[A-Za-z][\w.-]{0,60}>\s|[^\s\[\]<>\"']{0,254}[^\s:\[\]<>\"']\s{1,8})?"
_KERNEL_TAG = re.compile(
    rf"(?:<kern\.\w{{3,8}}>\s)?{_HOST}(?:(?P<facility>{_FACILITIES})\.\w{{3,8}}\s{{1,4}})?(?:In\(\d{{1,3}}\)\s)?(?:vm)?kernel(?:\[0\])?:(?:\s|(?=[\[<{{A-Za-z]))"
)
_VMKERNEL_TAG = re.compile(r"^(?:WARNING: )?cpu\d{1,4}:\d{1,10}(?:\s\S{1,40})?\)")
_OTHERS_TAG = re.compile(
    r"(?:stdout|stderr) [FP] |(?:[^\s\[\]]{1,255}\s{1,8})?[^\s:\[]{1,64}(?:\[[^\]\s]{1,64}\])?:(?:\s|$)|.{1,300}?\S\[\d{1,10}\]:\s"
)
_OTHERS_PID = re.compile(r"[\w.-]{1,255}\s[^\s:\[\]]{1,64}\[\d{1,10}\]:\s")
# Beginnings of kernel records, for logs that omit the author.
_SPEAKER = re.compile(
    r"NVRM: |nvidia-nvswitch\d|(?:\{\d{1,9}\})?\[Hardware Error\]|mce: |EDAC |[\w.-]{1,40} [0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:"
    r"[0-9a-fA-F]{2}\.[0-7]\b|oom-kill:|Out of [Mm]emory|Memory (?:cgroup|failure)|infiniband |nvidia-modeset: |mlx[45]_\w{2,4}: |oom_reaper: |Kernel panic - "
)
_LEFT_OUT = re.compile(r"\s{0,8}\[(?:\.{2,3}|…)\]\s{0,4}")  # manuals write this instead of a stamp
# Log collectors prepend a host, and a serial console its prompt.
_GATHERED = re.compile(r"(?:(?=[\w.-]{0,80}\d)[A-Za-z][\w.-]{0,80}:\s{0,4}|[\w.-]{1,64} login: {1,4})")
_NUMBERED = re.compile(
    r"\s{0,8}(?:[^\s:]{0,200}(?:log|syslog|messages|dmesg|txt)[^\s:]{0,20}:)?(?:\d{1,8}[:\s-]\s{0,8})?"
)


def strip_log_prefix(line: str) -> StrippedRecord:
    """Split a log line. The text of an author other than the kernel is not returned.

    >>> strip_log_prefix("Mar  4 12:00:00 n1 kernel: [  117.984502] NVRM: loading")
    Undressed(text='NVRM: loading', author=<Author.KERNEL: 'kernel'>)
    """
    if match := _KMSG.match(line):
        return StrippedRecord(line[match.end() :], Author.KERNEL) if _is_kernel_priority(match["prio"]) else _OTHER
    if _QUOTED.match(line):
        return _OTHER
    if match := _RFC5424.match(line):
        app, prio = match["app"], match["prio"] or "0"
        return (
            _strip_dmesg_stamp(line[match.end() :]) if app in ("kernel", "-") and _is_kernel_priority(prio) else _OTHER
        )
    author = Author.UNNAMED
    if match := _SYSLOG_PRIORITY.match(line):
        if not _is_kernel_priority(match["prio"]):
            return _OTHER
        line, author = line[match.end() :], Author.KERNEL
    if match := _TALOS.match(line) or _DECODED.match(line):
        if match["facility"] != "kern":
            return _OTHER
        line, author = line[match.end() :], Author.KERNEL
    return _strip_syslog_prefix(line, author)


def _strip_syslog_prefix(line: str, author: Author) -> StrippedRecord:
    """The text after date, host and name, if present."""
    if (match := _GATHERED.match(line)) and (_DMESG.match(line, match.end()) or _DATED.match(line, match.end())):
        line = line[match.end() :]
    if match := _LEFT_OUT.match(line):
        line = line[match.end() :]
    skipped = _NUMBERED.match(line)
    dated = _DATED.match(line) or (_DATED.match(line, skipped.end()) if skipped else None)
    rest = line[dated.end() :] if dated else line
    if match := _KERNEL_TAG.match(rest):
        if match["facility"] not in (None, "kern"):
            return _OTHER
        return _strip_dmesg_stamp(_VMKERNEL_TAG.sub("", rest[match.end() :], count=1))
    if dated is None:
        return _strip_undated_prefix(line, skipped.end() if skipped else 0, author)
    if dated["kernels"]:
        return _OTHER if _OTHERS_PID.match(rest) else StrippedRecord(rest, Author.KERNEL)
    if match := _VMKERNEL_TAG.match(rest):
        return StrippedRecord(rest[match.end() :], Author.KERNEL)
    if _DMESG.match(rest):
        return _strip_dmesg_stamp(rest)
    if _SPEAKER.match(rest):
        return StrippedRecord(rest, author)
    return _OTHER if _OTHERS_TAG.match(rest) else StrippedRecord(rest, author)


def _strip_undated_prefix(line: str, skip: int, author: Author) -> StrippedRecord:
    if match := _CONSOLE.match(line):
        line = line[match.end() :]
    if _DMESG.match(line):
        return _strip_dmesg_stamp(line)
    if skip and (_DMESG.match(line, skip) or _SPEAKER.match(line, skip)):
        line = line[skip:]
        return _strip_dmesg_stamp(line) if _DMESG.match(line) else StrippedRecord(line, author)
    return StrippedRecord(line, author)


def _strip_dmesg_stamp(text: str) -> StrippedRecord:
    """The text after dmesg's stamp; syslog daemons keep it, and old ones also keep the priority."""
    for _ in range(3):
        if match := _SYSLOG_PRIORITY.match(text):
            if not _is_kernel_priority(match["prio"]):
                return _OTHER
        elif not (match := _DMESG.match(text)):
            break
        text = text[match.end() :]
    if match := _KERNEL_TAG.match(text):  # journalctl -o short-monotonic
        text = text[match.end() :]
    elif _OTHERS_PID.match(text):
        return _OTHER
    return StrippedRecord(text, Author.KERNEL)


def _is_kernel_priority(priority: str) -> bool:
    return int(priority) >> 3 == 0


def extract_kernel_text(line: str) -> str | None:
    """The text of a kernel record without its log prefix; None if another program wrote the line.

    A line whose prefix names no author counts as the kernel's: the caller knows where it was read.

    >>> extract_kernel_text("Mar  4 12:00:00 n1 kernel: [  117.984502] NVRM: loading")
    'NVRM: loading'
    >>> extract_kernel_text("Mar  4 12:00:00 n1 app[77]: NVRM: loading") is None
    True
    """
    undressed = strip_log_prefix(line)
    return None if undressed.author is Author.OTHER else undressed.text
