"""The state of a source itself, whatever it reads."""

from __future__ import annotations

import enum
from typing import Any

import msgspec


class SourceState(str, enum.Enum):
    """Whether a source reports. Only `present` says anything about the machine."""

    WAITING = "waiting"  # not read yet
    PRESENT = "present"
    ABSENT = "absent"  # this machine has no such source
    FAILING = "failing"  # it cannot be read, or its content is invalid
    HUNG = "hung"  # a reading did not return; it was killed, and is retried later
    OFF = "off"  # by configuration


class SourceReading(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of one source. `sample` is set if it is present. `at` is UTC seconds, `seconds` the duration."""

    source: str
    state: SourceState
    at: float
    reason: str = ""
    seconds: float = 0.0
    sample: Any = None
    injected: bool = False
