"""The mount table of process 1: systemd or a container may restrict this process's own view."""

from __future__ import annotations

from typing import NamedTuple

from healthd.collectors.machine_access import MachineAccess, SourceAbsent

TABLES = ("/proc/1/mounts", "/proc/self/mounts")
_OCTAL = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))


class Mount(NamedTuple):
    """One line of the table."""

    device: str
    point: str
    type: str
    options: frozenset[str]


def read_mounts(machine: MachineAccess) -> list[Mount]:
    """Return all mounts, in the order they were made.

    Raises:
        SourceAbsent: there is no table of mounts.
    """
    text = next((text for table in TABLES if (text := machine.text(table))), None)
    if text is None:
        raise SourceAbsent(f"none of {', '.join(TABLES)} can be read")
    return parse_mount_table(text)


def parse_mount_table(text: str) -> list[Mount]:
    """Return device, mount point, type and options of each line (fstab(5); blanks are octal escapes)."""
    lines = (line.split() for line in text.splitlines())
    return [
        Mount(_unescape_octal(words[0]), _unescape_octal(words[1]), words[2], frozenset(words[3].split(",")))
        for words in lines
        if len(words) >= 4
    ]


def _unescape_octal(word: str) -> str:
    for code, letter in _OCTAL:
        word = word.replace(code, letter)
    return word
