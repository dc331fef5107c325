"""What is known of a source itself, whatever it reads."""

from __future__ import annotations

import enum
from typing import Any

import msgspec


class SourceState(str, enum.Enum):
    """Whether a source speaks. Only `present` says anything about the machine."""

    WAITING = "waiting"  # not read yet
    PRESENT = "present"
    ABSENT = "absent"  # this machine has no such thing
    FAILING = "failing"  # it cannot be read, or what it says makes no sense
    HUNG = "hung"  # reading it did not end; it was ended, and is tried again later
    OFF = "off"  # by configuration


class SourceReading(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one source. `sample` is there if it is present. `at` is UTC seconds, `seconds` what the look took."""

    source: str
    state: SourceState
    at: float
    reason: str = ""
    seconds: float = 0.0
    sample: Any = None
    injected: bool = False
