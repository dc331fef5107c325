"""A program of healthd's own that could not be started."""

from __future__ import annotations

import msgspec


class StartFailure(msgspec.Struct, frozen=True):
    """The last start of `program` failed with `errno`. `limit` is the process limit that was reached, if one was."""

    program: str
    errno: int
    reason: str
    limit: int | None = None
