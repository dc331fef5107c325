"""The call page: shared memory in which a child notes every driver call before making it.

Writing costs no system call. When the child hangs, the parent reads there which call it hangs in.
"""

from __future__ import annotations

import mmap

CALL_PAGE_BYTES = 128


class ChildCallPage:
    """One page, seen by both processes through the same descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._page = mmap.mmap(descriptor, CALL_PAGE_BYTES)

    def write(self, index: int | None, call: str) -> None:
        """Note the next call and its GPU; an empty call between sweeps."""
        words = f"{'-' if index is None else index} {call}".encode()
        self._page[:] = words[:CALL_PAGE_BYTES].ljust(CALL_PAGE_BYTES, b"\0")

    def read(self) -> tuple[int | None, str]:
        """Return the GPU's index (None if none in particular) and the call."""
        index, _, call = self._page[:].rstrip(b"\0").decode(errors="replace").partition(" ")
        return (int(index) if index.isdecimal() else None), call

    def close(self) -> None:
        """Unmap the page."""
        self._page.close()
