"""Where a node's healthd answers local clients (preflight, the launcher, commands), and when an answer is stale."""

from __future__ import annotations

from collections.abc import Mapping

SOCKET = "/run/gpu-healthd/healthd.sock"  # unless HEALTHD_SOCKET or --socket overrides it
STALE_S = 5.0  # healthd renews its verdict every second: an older one is stale


def verdict_age_s(document: Mapping[str, object], wall: float) -> float:
    """Return the age of a verdict just received on this machine, at wall time `wall`; infinite if it states none.

    healthd states the age itself, by a monotonic clock. An older healthd states only when the verdict was made.
    """
    age_s, at = document.get("age_s"), document.get("at")
    if isinstance(age_s, int | float):
        return age_s if age_s >= 0 else float("inf")
    return abs(wall - at) if isinstance(at, int | float) else float("inf")
