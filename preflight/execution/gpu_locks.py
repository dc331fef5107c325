"""Locks GPUs, so that two preflights never test one GPU at the same time, which would slow both and blame the GPU.

A lock is an abstract socket name, unique in the network namespace. The kernel releases it with the process; no file remains.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable

_PREFIX = "\0gpu-healthd/preflight/"  # an abstract name, not a path
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class GpuLocks:
    """The GPUs locked by this preflight. The creator closes it."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def hold(self, uuids: Iterable[str]) -> str:
        """Lock GPUs, by UUID or that of a MIG instance. Returns the current holder as text; empty if none or unknown."""
        for uuid in uuids:
            claim = socket.socket(socket.AF_UNIX)
            self._held.append(claim)
            try:
                claim.bind(_PREFIX + uuid)
                claim.listen()
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    return ""  # a kernel without abstract names; running processes are detected anyway
                return f"another preflight{_describe_lock_holder(uuid)} holds {uuid}: wait until it ends"
        return ""

    def close(self) -> None:
        """Release all locks."""
        for claim in self._held:
            claim.close()
        self._held.clear()


def _describe_lock_holder(uuid: str) -> str:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        try:
            asking.connect(_PREFIX + uuid)
            answer = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return ""  # it has just ended
    return f", process {_CREDENTIALS.unpack(answer)[0]},"
