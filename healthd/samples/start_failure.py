"""A healthd program that could not be started."""

from __future__ import annotations

import msgspec


class StartFailure(msgspec.Struct, frozen=True):
    """The last start of `program` failed with `errno`. `limit` is the process limit that was reached, if any."""

    program: str
    errno: int
    reason: str
    limit: int | None = None
