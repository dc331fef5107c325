"""The change record of the local backend: every new version of the file of holds, told by the kernel (inotify), not polled."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import threading
from pathlib import Path

from tests.chaos.world.journal import Journal

MOVED_TO = 0x80
_EVENT = struct.Struct("iIII")


class HoldsWatch:
    """Writes one line for each node whose hold differs from the version before.

    Two changes a few milliseconds apart may be seen as one version: then what was lifted is told first, for nobody saw which was.
    """

    def __init__(self, file: Path, journal: Journal) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file, self._journal = file, journal
        self._known: dict[str, str] = {}
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_CLOEXEC)
        assert self._descriptor >= 0, os.strerror(ctypes.get_errno())
        assert libc.inotify_add_watch(self._descriptor, str(file.parent).encode(), MOVED_TO) >= 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            events = os.read(self._descriptor, 1 << 16)
            while events:
                _, _, _, length = _EVENT.unpack_from(events)
                name = events[_EVENT.size : _EVENT.size + length].rstrip(b"\0").decode()
                events = events[_EVENT.size + length :]
                if name == self._file.name:
                    self._compare()

    def _compare(self) -> None:
        now = {node: hold["reason"] for node, hold in json.loads(self._file.read_text())["holds"].items()}
        for node in sorted({*now, *self._known}, key=lambda node: (node in now, node)):
            if now.get(node) != self._known.get(node):
                self._journal.write("scheduler", node=node, held=node in now, reason=now.get(node, ""))
        self._known = now
