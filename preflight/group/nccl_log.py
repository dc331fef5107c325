"""NCCL's log of this process, kept in memory. NCCL reads its settings at its first use, and writes to the file that they name."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

_LEVEL, _PARTS, _FILE = "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"
_QUIET = {"", "VERSION", "WARN"}  # with any other level an operator wants to see the log
_WARNING = " NCCL WARN "


class NcclLog:
    """The log, unless an operator's settings send it elsewhere: then it reads as empty."""

    def __init__(self) -> None:
        self._file = -1
        self._noted = 0

    def open(self, environ: MutableMapping[str, str] = os.environ) -> None:
        """Set NCCL's variables, before its first use in this process. A child that inherits them cannot open the log."""
        if environ.get(_LEVEL, "").upper() not in _QUIET or environ.get(_FILE) or environ.get(_PARTS):
            return
        self._file = os.memfd_create("nccl-log")
        environ.update({_LEVEL: "INFO", _PARTS: "INIT,NET", _FILE: f"/proc/self/fd/{self._file}"})

    def read(self) -> str:
        """Everything so far."""
        if self._file < 0:
            return ""
        return os.pread(self._file, os.fstat(self._file).st_size, 0).decode(errors="replace")

    def take_warnings(self) -> list[str]:
        """Warnings since the last call, which an operator would otherwise see on the screen."""
        lines = self.read().splitlines()
        new, self._noted = lines[self._noted :], len(lines)
        return [line for line in new if _WARNING in line]
