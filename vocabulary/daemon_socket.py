"""Where a node's healthd answers local clients (preflight, the launcher, commands), and when an answer is stale."""

from __future__ import annotations

from collections.abc import Mapping

SOCKET = "/run/gpu-healthd/healthd.sock"  # unless HEALTHD_SOCKET or --socket overrides it
STALE_S = 5.0  # healthd renews its verdict every second: an older one is stale


def verdict_age_s(document: Mapping[str, object]) -> float:
    """Return the age that healthd states, by a monotonic clock; infinite if the verdict states none."""
    age_s = document.get("age_s")
    return age_s if isinstance(age_s, int | float) and age_s >= 0 else float("inf")
