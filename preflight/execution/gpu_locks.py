"""So that no two preflights test one GPU at a time: each would slow the other down, and blame the GPU.

A claim is a name that only one socket of this network namespace can have. The kernel lets go of it with its process; no file is left.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable

_PREFIX = "\0gpu-healthd/preflight/"  # no path: an abstract name
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class GpuLocks:
    """The GPUs that this preflight has for itself. Whoever makes it closes it."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def hold(self, uuids: Iterable[str]) -> str:
        """Claim GPUs, by UUID or by that of a MIG instance. Who has one already, in words; empty if nobody, or if this cannot be told."""
        for uuid in uuids:
            claim = socket.socket(socket.AF_UNIX)
            self._held.append(claim)
            try:
                claim.bind(_PREFIX + uuid)
                claim.listen()
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    return ""  # a kernel without such names; who computes there shows all the same
                return f"another preflight{_describe_lock_holder(uuid)} has {uuid}: wait for its end"
        return ""

    def close(self) -> None:
        """Let go of all."""
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
