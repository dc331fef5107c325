"""How an active finding was settled and, if by an operator, since when that counts."""

from __future__ import annotations

import msgspec

COUNTS_S = 900.0  # default for how long an operator's settlement counts against new sightings


class Settlement(msgspec.Struct, frozen=True, omit_defaults=True):
    """A closed incident settled it.

    `said` is the operator's reason for closing it (`ann resolved it`), empty without one.

    `at` is its latest time (UTC s); a sighting after its period gets a new decision.
    """

    incident: str
    said: str = ""
    at: float = 0.0
