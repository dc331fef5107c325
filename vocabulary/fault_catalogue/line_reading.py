"""The meaning of one line for operators, after its own details were considered. Pure."""

from __future__ import annotations

import enum

import msgspec

from vocabulary.fault_catalogue.catalogue_entry import Advice
from vocabulary.finding import Severity


class Basis(str, enum.Enum):
    """What a reading is based on, best first."""

    TABLE = "table"  # a row, a bit or a rule that matches the line
    LINE = "line"  # the driver's own severity
    ENTRY = "entry"  # only general knowledge of the number


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The severity of a line and the action. `says` are sentences for a person.

    `unit` and `layout` (``v1``, ``v2``, or ``v1 or v2``) belong to NVLink 5; `immediate` and `later` are the vendor's
    action names of the matching row. `follow` is the number of an earlier Xid that decides instead.
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
        """Order for comparisons: the worse severity first, then the stronger action."""
        return self.severity.rank, self.action.rank
