"""Findings that the centre itself makes of what many nodes said. Their origin tells them from what a node says of itself."""

from __future__ import annotations

from vocabulary.finding import Finding

CENTRE = "centre:"  # begins the origin of every such finding; what it was made of follows


def is_concluded(finding: Finding) -> bool:
    """Whether the centre made it: then no node asserts it, and none may take it back."""
    return finding.origin.startswith(CENTRE)
