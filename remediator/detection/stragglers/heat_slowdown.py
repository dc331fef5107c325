"""A job slowed down by one hot GPU: its clocks are held down by heat, and steps take longer since then. Pure.

The hardware's report and the onset in time take the place of peers, so this also works for jobs with few ranks. Heat
alone proves nothing: many hot GPUs slow no job, and the step time decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from remediator.detection.stragglers.straggler_verdict import Culprit, SlowdownKind, StragglerVerdict, VerdictReason

RISE_MIN = 0.05  # as the least slowdown that is watched
BEFORE_S, AFTER_S = 300.0, 300.0  # compared on both sides of the onset
LEAD_S = 90.0  # a check raises heat after 30 s, clocks after 60 s; a report comes every 10 s
SPAN_MIN_S, SAMPLES_MIN = 50.0, 4  # on each side
NOISE = 4.0  # the rise in standard errors of the two medians
LASTS_S = 120.0  # the newest samples, in which the job must still be slow
OTHERS_MAX = 0.4  # of the hot rank's rise: what other nodes' ranks rise as much has another cause


class PaceSample(NamedTuple):
    """The job's seconds per step as reported at a time (UTC s), and the row of its windows that was complete then."""

    at: float
    step_s: float
    row: int


class HeatOnset(NamedTuple):
    """When heat began to hold the GPU down (UTC s), the job's step time until then, and how much it rose.

    `own_agrees`: the rank's own time was measured and rose too. Step time alone is a suspicion: a network that becomes
    slow at that moment looks the same.
    """

    at: float
    usual_step_s: float
    rise: float
    own_agrees: bool = False


def find_heat_onset(samples: Sequence[PaceSample], hot_since: float) -> HeatOnset | None:
    """Return the rise of the step time at the time when the heat was raised; None without one, or too early to tell.

    Args:
        samples: oldest first.
        hot_since: when the node raised it (UTC s); it began up to `LEAD_S` before.
    """
    start = hot_since - LEAD_S
    before = [each for each in samples if start - BEFORE_S <= each.at <= start]
    after = [each for each in samples if hot_since <= each.at <= hot_since + AFTER_S]
    if not (_is_long_enough(before) and _is_long_enough(after)):
        return None
    usual, then = (median(each.step_s for each in part) for part in (before, after))
    spread = max(_standard_error(part) for part in (before, after))
    rise = then / usual - 1
    if rise < max(RISE_MIN, NOISE * spread / usual):
        return None
    return HeatOnset(hot_since, usual, round(rise, 4))


def current_rise(samples: Sequence[PaceSample], onset: HeatOnset, now: float) -> float | None:
    """Return by how much steps take longer now than before the heat; None without new samples."""
    new = [each.step_s for each in samples if each.at >= max(onset.at, now - LASTS_S)]
    return median(new) / onset.usual_step_s - 1 if new else None


def blame_hot_rank(
    rank: int, node: str, rise: float, own_rise: float | None, others_rise: float | None
) -> StragglerVerdict | None:
    """Return the verdict on the rank of the hot GPU; None if its own time, where known, does not agree.

    Args:
        rank: of the hot GPU.
        node: of the hot GPU.
        rise: of the job's step time.
        own_rise: of the rank's own computation, None if not measured.
        others_rise: median over the ranks of other nodes, None if there are none.
    """
    if rise < RISE_MIN:
        return None
    if own_rise is not None and (own_rise < RISE_MIN or (others_rise or 0.0) > OTHERS_MAX * own_rise):
        return None
    reasons = [VerdictReason("step_time_slower_since_hot", round(rise, 4))]
    if own_rise is not None:
        reasons.append(VerdictReason("own_time_slower_since_hot", round(own_rise, 4), rank))
    sure = 0.8 if own_rise is None else 0.9
    return StragglerVerdict(SlowdownKind.GPU, (Culprit(rank, node, round(rise, 4)),), None, sure, tuple(reasons))


def _is_long_enough(samples: Sequence[PaceSample]) -> bool:
    return len(samples) >= SAMPLES_MIN and samples[-1].at - samples[0].at >= SPAN_MIN_S


def _standard_error(samples: Sequence[PaceSample]) -> float:
    """Return the standard error of the median, from the median absolute deviation."""
    middle = median(each.step_s for each in samples)
    deviation = median(abs(each.step_s - middle) for each in samples)
    return 1.25 * 1.4826 * deviation / math.sqrt(len(samples))
