"""What one line means for whoever has to act, after its own words were weighed. Pure."""

from __future__ import annotations

import enum

import msgspec

from vocabulary.fault_catalogue.catalogue_entry import Advice
from vocabulary.finding import Severity


class Basis(str, enum.Enum):
    """What a reading rests on, best first."""

    TABLE = "table"  # a row, a bit or a rule that fits the words in the line
    LINE = "line"  # the driver's own word or number for how bad it is
    ENTRY = "entry"  # only what is known of the number in general


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How bad a line is and what to do. `says` are sentences for a person.

    `unit` and `layout` (``v1``, ``v2``, or ``v1 or v2``) belong to NVLink 5; `immediate` and `later` are the vendor's own
    words of the row that fits. `follow` is the number of an earlier Xid that decides instead.
    """

    severity: Severity
    action: Advice
    basis: Basis
    says: tuple[str, ...] = ()
    unit: str = ""
    layout: str = ""
    immediate: str = ""
    later: str = ""
    follow: int | None = None

    @property
    def weight(self) -> tuple[int, int]:
        """Order for comparisons: the worse severity first, then the heavier action."""
        return self.severity.rank, self.action.rank
