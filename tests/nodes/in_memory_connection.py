"""The other end of a connection, without a socket."""

from __future__ import annotations

import asyncio
from typing import Any


class Wire(asyncio.Transport):
    """What a protocol writes to, and whether it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Nothing comes but by hand."""

    def resume_reading(self) -> None:
        """The same."""
