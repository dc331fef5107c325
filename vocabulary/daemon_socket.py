"""Where a node's healthd answers who is on the node, and how old an answer may be: preflight, the launcher and people's commands ask there."""

from __future__ import annotations

from collections.abc import Mapping

SOCKET = "/run/gpu-healthd/healthd.sock"  # unless HEALTHD_SOCKET or --socket says otherwise
STALE_S = 5.0  # healthd renews its verdict every second: an older one says nothing of now


def verdict_age_s(document: Mapping[str, object], wall: float) -> float:
    """How old a verdict is that was answered just now, on this very machine, where it is `wall`. Infinite if it does not say.

    healthd says it itself, by a clock that nobody sets. An older healthd says only when the verdict was made.
    """
    age_s, at = document.get("age_s"), document.get("at")
    if isinstance(age_s, int | float):
        return age_s if age_s >= 0 else float("inf")
    return abs(wall - at) if isinstance(at, int | float) else float("inf")
