"""Estimates the cost of a save and the job's failure rate from observations. Pure; times in seconds."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Sequence
from math import isfinite
from statistics import median

SAVES_KEPT = 7  # the median ignores three outliers: a cold file system, a neighbour's burst
PRIOR_FAILURES = 2.0  # the prior MTBF weighs as much as two observed failures: our choice


class MedianCost:
    """The median of the last few measurements of one cost; the prior until there is one."""

    def __init__(self, prior_s: float) -> None:
        if not isfinite(prior_s) or prior_s < 0:
            raise ValueError(f"a prior cost of {prior_s!r} s is invalid; it must be 0 or more")
        self._prior_s = prior_s
        self._seen_s: deque[float] = deque(maxlen=SAVES_KEPT)

    def add(self, seconds: float) -> None:
        """Add a measurement; an invalid duration is ignored."""
        if isfinite(seconds) and seconds >= 0:
            self._seen_s.append(seconds)

    @property
    def measured(self) -> bool:
        """Whether it is more than the prior."""
        return bool(self._seen_s)

    @property
    def seconds(self) -> float:
        """The cost, as far as known."""
        return median(self._seen_s) if self._seen_s else self._prior_s


def compute_slowdown(ends_s: Sequence[float], write_s: float) -> float | None:
    """Return by how much the steps beside a save's write were longer in all than as many after it; None if none came after it.

    Args:
        ends_s: when each step ended, from when training resumed.
        write_s: how long the save was being written, from then on.
    """
    beside = bisect.bisect_left(ends_s, write_s) + 1
    if beside >= len(ends_s):
        return None
    alone_s = (ends_s[-1] - ends_s[beside - 1]) / (len(ends_s) - beside)
    return max(0.0, ends_s[beside - 1] - beside * alone_s)


class HazardEstimate:
    """Failures per second of a whole job: a gamma prior around the nodes' MTBF, updated by observed run time.

    Raises:
        ValueError: no nodes, or an MTBF that is not positive.
    """

    def __init__(self, nodes: int, node_mtbf_s: float, prior_failures: float = PRIOR_FAILURES) -> None:
        if nodes < 1 or not isfinite(node_mtbf_s) or node_mtbf_s <= 0 or prior_failures <= 0:
            raise ValueError(f"{nodes} nodes with an MTBF of {node_mtbf_s!r} s; both must be above 0")
        self._nodes = nodes
        self._failures = prior_failures
        self._node_seconds = prior_failures * node_mtbf_s

    def lived(self, seconds: float, failures: int = 0) -> None:
        """Add a run time and the node failures that ended it; invalid times are ignored."""
        if isfinite(seconds) and seconds >= 0 and failures >= 0:
            self._node_seconds += seconds * self._nodes
            self._failures += failures

    def per_s(self) -> float:
        """The posterior mean for the whole job."""
        return self._nodes * self._failures / self._node_seconds
