"""Culprits named in k of the last n passes over windows that do not overlap. Pure.

A single pass names a healthy rank now and then, and orders a test at most; chance rarely picks the same rank twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from remediator.detection.stragglers.straggler_verdict import Culprit, StragglerVerdict

TIMES, PASSES = 2, 3


def repeat_culprits_of(
    verdicts: Sequence[StragglerVerdict], times: int = TIMES, passes: int = PASSES
) -> tuple[Culprit, ...]:
    """Return the culprits named in at least `times` of the newest `passes` verdicts, as in the newest of those.

    Args:
        verdicts: oldest first, including those without culprits.
        times: k of n, at least 1.
        passes: n.
    """
    newest = verdicts[-passes:] if passes > 0 else []
    counts = Counter(culprit.rank for verdict in newest for culprit in verdict.culprits)
    seen = {culprit.rank: culprit for verdict in newest for culprit in verdict.culprits}
    named = [culprit for rank, culprit in seen.items() if counts[rank] >= max(times, 1)]
    return tuple(sorted(named, key=lambda culprit: (-culprit.slowdown, culprit.rank)))
