"""Secrets in files: read for each message, so that a rotated one applies at once, and never logged."""

from __future__ import annotations

from pathlib import Path

from vocabulary.text.plurals import format_count

LENGTH_MAX = 65536


class SecretError(Exception):
    """A secret cannot be used: which file and why, never its content."""


def read_secret_lines(file: str) -> list[str]:
    """Return the lines of a secret file that are neither empty nor begin with '#'.

    Raises:
        SecretError: it cannot be read, is too large, is empty, or has characters other than printable ASCII.
    """
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(LENGTH_MAX + 1)
    except OSError as error:
        raise SecretError(f"{file}: cannot be read ({error.strerror})") from None
    if len(content) > LENGTH_MAX:
        raise SecretError(f"{file}: too large for a secret")
    try:
        lines = [line.strip() for line in content.decode("ascii").splitlines()]
    except UnicodeDecodeError:
        raise SecretError(f"{file}: contains characters other than printable ASCII") from None
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise SecretError(f"{file}: is empty")
    if not all(line.isprintable() for line in found):
        raise SecretError(f"{file}: contains characters other than printable ASCII")
    return found


def read_secret(file: str) -> str:
    """Return the only line of a secret file.

    Raises:
        SecretError: as `read_secret_lines`, or there are several.
    """
    lines = read_secret_lines(file)
    if len(lines) > 1:
        raise SecretError(f"{file}: contains {format_count(len(lines), 'line')}; one is expected")
    return lines[0]
