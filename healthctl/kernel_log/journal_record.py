"""A journal record with its fields: the author and the message (systemd.journal-fields)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Fields = Mapping[str, Any]

_FIELD = re.compile(r"\s{0,8}(?P<name>[A-Z_][A-Z0-9_]{0,63})=(?P<value>.*)", re.DOTALL)
_OF_PROCESSES = ("_PID", "_UID", "_COMM", "_EXE", "_CMDLINE", "_SYSTEMD_UNIT", "_SYSTEMD_CGROUP", "SYSLOG_PID")


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
