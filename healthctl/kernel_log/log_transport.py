"""Extracts kernel messages from log lines in every format in which a kernel record reaches a file or a pipe.

Most formats have one record per line, which `healthctl.kernel_log.log_prefix` parses. The journal's long formats
(verbose, export, JSON) have separate author fields, some after the message: those records are collected first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from healthctl.kernel_log.log_prefix import Author, strip_log_prefix
from vocabulary.driver_log.injected_line import MARK, parse_injected_line

LINES_OF_RECORD_MAX = 2000  # a journal record has some twenty fields; an endless one is not a record
TEXT_CHARS_MAX = 64 << 10
CONTINUES_AT = 4  # columns; less indentation comes from pasting

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}[mK]")
_KMSG = re.compile(r"\d{1,5},\d{1,20},\d{1,20}(?:,[^;\s]{0,80})?;")
_FIELD_OF_KMSG = re.compile(r" [A-Z_][A-Z0-9_]{0,63}=")
_ESCAPE = re.compile(r"(?:\\x[0-9a-fA-F]{2})+")
_JSON = re.compile(r"(?:\x1e|data: |\s{1,8})?\{(?!\d)")  # "{1}[Hardware Error]" is none
_REPEATED = re.compile(r"message repeated \d{1,9} times: \[ (?P<message>.*)\]\s*$", re.DOTALL)
_VERBOSE = re.compile(r"\S{1,12} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})? \S{1,12} \[s=[0-9a-f]")
Fields = Mapping[str, Any]

_FIELD = re.compile(r"\s{0,8}(?P<name>[A-Z_][A-Z0-9_]{0,63})=(?P<value>.*)", re.DOTALL)
_OF_PROCESSES = ("_PID", "_UID", "_COMM", "_EXE", "_CMDLINE", "_SYSTEMD_UNIT", "_SYSTEMD_CGROUP", "SYSLOG_PID")


class KernelText(NamedTuple):
    """The kernel's message in a line; None if another program wrote it. `by_name`: the line names the kernel as author."""

    text: str | None
    by_name: bool = False
    injected: bool = False


NOTHING = KernelText(None)


def extract_kernel_texts(lines: Iterable[str]) -> Iterator[KernelText]:
    """One result per line, in order. A multi-line record is returned when it ends."""
    listener = _LineReader()
    record: list[str] = []
    for raw in lines:
        line = _COLOUR.sub("", raw) if "\x1b[" in raw else raw
        line = line.strip("\0\ufeff")  # a log cut short by a crash is padded with NULs
        if record and len(record) < LINES_OF_RECORD_MAX:
            if _continues_journal_record(record[0], line):
                record.append(line)
                continue
            if record[0] == "{" and line.rstrip() == "}":
                yield from _read_journal_record([*record, line])
                record = []
                continue
        if record:
            yield from _read_journal_record(record)
            record = []
        if _begins_journal_record(line):
            record = [line.rstrip()]
        else:
            yield listener.read_line(line)
    if record:
        yield from _read_journal_record(record)


class _LineReader:
    """Parses single-line records. Remembers the line that an indented one may continue."""

    def __init__(self) -> None:
        self._last = ""

    def read_line(self, line: str) -> KernelText:
        if _JSON.match(line):
            fields = parse_json_record(line.lstrip("\x1e").removeprefix("data: ").strip().rstrip(","))
            return NOTHING if fields is None else _read_journal_fields(fields)
        depth = _indent_width(line)
        if not depth or not line.strip():
            self._last = line.strip()
        elif _FIELD_OF_KMSG.match(line) and _KMSG.match(self._last):
            return NOTHING
        line = line[:TEXT_CHARS_MAX]
        if MARK in line and (marked := parse_injected_line(line)):
            return KernelText(
                _unescape_kmsg(marked.text) if _KMSG.match(line) else marked.text, by_name=True, injected=True
            )
        text, author = strip_log_prefix(line.lstrip() if depth else line)
        if author is Author.KERNEL and (repeated := _REPEATED.match(text)):  # rsyslog abbreviates repeated messages
            text, author = strip_log_prefix(repeated["message"])
        if author is Author.OTHER:
            return NOTHING
        if depth >= CONTINUES_AT and author is Author.UNNAMED and strip_log_prefix(self._last).author is Author.OTHER:
            return NOTHING  # a continuation line, as journalctl shows it
        return KernelText(_unescape_kmsg(text) if _KMSG.match(line) else text, by_name=author is Author.KERNEL)


def _indent_width(line: str) -> int:
    """The indentation of a line, in columns."""
    return len(line[: len(line) - len(line.lstrip())].expandtabs())


def _read_journal_record(lines: list[str]) -> Iterator[KernelText]:
    """The lines of one journal record: only those of its message have text."""
    fields, spoken = parse_record_lines(lines)
    for line_no in range(len(lines)):
        yield _read_journal_fields({**fields, "MESSAGE": spoken[line_no]}) if line_no in spoken else NOTHING


def _read_journal_fields(fields: Fields) -> KernelText:
    text = record_message(fields)
    if text is None:
        return NOTHING
    if MARK in text and (marked := parse_injected_line(text[:TEXT_CHARS_MAX])):
        return KernelText(marked.text, by_name=True, injected=True)
    whose = is_from_kernel(fields)
    return NOTHING if whose is False else KernelText(text[:TEXT_CHARS_MAX], by_name=whose is True)


def _begins_journal_record(line: str) -> bool:
    """Whether a multi-line journal record begins here: verbose, export, or pretty JSON."""
    return line.rstrip() == "{" or line.startswith("__CURSOR=") or (" [s=" in line and bool(_VERBOSE.match(line)))


def _continues_journal_record(first: str, line: str) -> bool:
    if first == "{":
        return line.rstrip() != "}"
    if first.startswith("__CURSOR="):
        return bool(line.strip("\r\n")) and not line.startswith("__CURSOR=")
    return line.startswith("    ")


def _unescape_kmsg(text: str) -> str:
    r"""Decode kmsg's ``\xNN`` escapes; invalid UTF-8 stays escaped."""
    if "\\x" not in text:
        return text
    return _ESCAPE.sub(lambda match: bytes.fromhex(match[0].replace("\\x", "")).decode(errors="backslashreplace"), text)


def parse_json_record(line: str) -> Fields | None:
    """The fields of ``journalctl -o json``; None if the line is not such a record."""
    try:
        found = msgspec.json.decode(line.encode(errors="backslashreplace"))
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) and "MESSAGE" in found else None


def parse_record_lines(lines: Sequence[str]) -> tuple[Fields, dict[int, str]]:
    """The fields of a multi-line record, and the message text on each line."""
    if lines[0] == "{":
        return _parse_pretty_json_record(lines)
    fields: dict[str, str] = {}
    spoken: dict[int, str] = {}
    speaking = binary = False
    for number, line in enumerate(lines):
        match = None if binary else _FIELD.match(line)
        if match is not None:
            fields[match["name"]] = match["value"]
            speaking = match["name"] == "MESSAGE"
            if speaking:
                spoken[number] = match["value"]
        elif binary:
            spoken[number] = line.rpartition("\0")[2]  # after eight bytes of length
            speaking = True
        elif speaking and line != "MESSAGE":
            spoken[number] = line.strip()
        binary = line == "MESSAGE"
    return fields, spoken


def _parse_pretty_json_record(lines: Sequence[str]) -> tuple[Fields, dict[int, str]]:
    fields = parse_json_record("\n".join(lines))
    text = None if fields is None else record_message(fields)
    if fields is None or text is None:
        return {}, {}
    begins = (number for number, line in enumerate(lines) if line.lstrip().startswith('"MESSAGE"'))
    return fields, dict.fromkeys(begins, text)


def record_message(fields: Fields) -> str | None:
    """The message text. The journal shows invalid UTF-8 as a list of bytes, and an overlong message as null."""
    message = fields.get("MESSAGE")
    if isinstance(message, str):
        return message
    if isinstance(message, list) and all(isinstance(byte, int) and 0 <= byte <= 255 for byte in message):
        return bytes(message).decode(errors="backslashreplace")
    return None


def is_from_kernel(fields: Fields) -> bool | None:
    """Whether the kernel wrote it; None if no field says.

    The transport alone does not show that: a process that writes to ``/dev/kmsg`` uses the same one, with another facility.
    """
    said = {
        "kernel": [fields[name] for name in ("_TRANSPORT", "SYSLOG_IDENTIFIER") if fields.get(name) is not None],
        "0": [str(fields[name]) for name in ("SYSLOG_FACILITY",) if fields.get(name) is not None],
    }
    if any(value != wanted for wanted, values in said.items() for value in values):
        return False
    if fields.get("_TRANSPORT") is None and any(name in fields for name in _OF_PROCESSES):
        return False
    return True if said["kernel"] else None
