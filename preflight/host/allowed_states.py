"""Node states that the site allows, by name."""

from __future__ import annotations

import os

ALLOW_VARIABLE = "HEALTHD_PREFLIGHT_ALLOW"  # comma-separated names


def allowed_states() -> frozenset[str]:
    """The names in the environment variable."""
    words = os.environ.get(ALLOW_VARIABLE, "").split(",")
    return frozenset(word.strip() for word in words if word.strip())
