"""Names the socket on which a rank answers where it is: beside its page, `PID.START.stacks.sock`. Pure."""

from __future__ import annotations

import re

SOCKET_SUFFIX = ".stacks.sock"
_NAME = re.compile(rf"([1-9]\d{{0,9}})\.(\d{{1,20}}){re.escape(SOCKET_SUFFIX)}", re.ASCII)


def stack_socket_name(pid: int, process_start: int) -> str:
    """Return the file name for a process, by its pid and its start in clock ticks: short, as a socket's must be.

    >>> stack_socket_name(7, 1234)
    '7.1234.stacks.sock'
    """
    return f"{pid}.{process_start}{SOCKET_SUFFIX}"


def parse_socket_name(name: str) -> tuple[int, int] | None:
    """Return the pid and start that a file name holds; None if it is not such a name.

    >>> parse_socket_name("7.1234.stacks.sock")
    (7, 1234)
    """
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None
