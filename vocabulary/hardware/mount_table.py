"""The table of mounted file systems. Pure; the caller reads the files of `/proc`."""

from __future__ import annotations

from typing import NamedTuple


class Mount(NamedTuple):
    """One mounted file system."""

    device: str
    point: str
    type: str
    options: tuple[str, ...]


def parse_mount_table(text: str) -> list[Mount]:
    """Return each line of ``/proc/self/mounts`` (fstab(5)), in the order the file systems were mounted."""
    lines = (line.split(" ") for line in text.split("\n"))  # any other blank may be part of a name
    return [
        Mount(_unescape_octal(words[0]), _unescape_octal(words[1]), words[2], tuple(words[3].split(",")))
        for words in lines
        if len(words) >= 4
    ]


def _unescape_octal(word: str) -> str:
    r"""The kernel writes a space as ``\040``, and a backslash as ``\134``."""
    first, *others = word.split("\\")
    return first + "".join(
        chr(int(part[:3], 8)) + part[3:] if len(part) >= 3 and set(part[:3]) <= set("01234567") else f"\\{part}"
        for part in others
    )
