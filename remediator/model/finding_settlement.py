"""Who dealt with a finding that is still asserted, and, where it was a person, since when their word counts."""

from __future__ import annotations

import msgspec

COUNTS_S = 900.0  # how long a person's word counts against what is seen anew, where nothing else is configured


class Settlement(msgspec.Struct, frozen=True, omit_defaults=True):
    """A closed incident dealt with it. `said` is the person's word that closed it (`ann resolved it`), empty where none did.

    `at` is when they said so last (UTC s); what is seen so much later that their word is over, is decided upon afresh.
    """

    incident: str
    said: str = ""
    at: float = 0.0
