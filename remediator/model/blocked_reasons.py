"""Formats and parses the entries of `StatusView.blocked`; no other module knows their form. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

_OF_ONE = re.compile(r"(?P<incident>inc-\S+) on (?P<node>\S+) (?P<what>.+)", re.DOTALL)


class IncidentBlocker(NamedTuple):
    """What blocks one incident."""

    incident: str
    node: str
    what: str

    def __str__(self) -> str:
        return f"{self.incident} on {self.node} {self.what}"


def parse_incident_blocker(sentence: str) -> IncidentBlocker | None:
    """Parse a sentence about one incident; None if it is about more than one."""
    found = _OF_ONE.fullmatch(sentence)
    return IncidentBlocker(**found.groupdict()) if found else None


def mode_sentence_prefix(mode: str) -> str:
    """Return how the sentence about the mode begins."""
    return f"mode is {mode}"
