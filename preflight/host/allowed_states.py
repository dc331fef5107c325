"""The states of a node that its site means to have, by name."""

from __future__ import annotations

import os

ALLOW_VARIABLE = "HEALTHD_PREFLIGHT_ALLOW"  # names with commas


def allowed_states() -> frozenset[str]:
    """As the environment names them."""
    words = os.environ.get(ALLOW_VARIABLE, "").split(",")
    return frozenset(word.strip() for word in words if word.strip())
