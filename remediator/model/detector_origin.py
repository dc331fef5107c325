"""The origin of findings from the controller's own detectors, which distinguishes them from the node's own."""

from __future__ import annotations

from vocabulary.finding import Finding

CENTRE = "centre:"  # prefix of the origin of every such finding; its source follows


def is_concluded(finding: Finding) -> bool:
    """Return whether the controller made the finding: then no node asserts it, and none may clear it."""
    return finding.origin.startswith(CENTRE)
