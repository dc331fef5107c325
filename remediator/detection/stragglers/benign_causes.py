"""Benign causes of lost time: uneven stages, uneven data, garbage collection, duties of one rank. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remediator.detection.stragglers.intermittent_slowness import find_slow_steps
from remediator.detection.stragglers.peer_comparison import PeerComparison, peer_groups
from remediator.detection.stragglers.robust_statistics import excess_over_others, nan_median, robust_spread
from remediator.detection.stragglers.sequence_length_model import robust_correlation
from remediator.detection.stragglers.step_trace import UNKNOWN, Bools, Floats, Ints, StepTrace, as_slice
from remediator.detection.stragglers.straggler_verdict import SlowdownKind, StragglerVerdict, VerdictReason

STAGE_MIN = 0.10
DATA_MIN, DATA_SPREAD, DATA_TOGETHER, DATA_SHARED = 0.05, 0.02, 0.9, 0.6
SPIKES = 5
GC_FORWARD, GC_RANKS, ONE_RANK = 0.7, 3, 0.8
LOSS_MIN = 0.002
SLOW_NODE_POSSIBLE = "slow_node_not_excluded"
SURE, SURE_ONE_NODE = 0.9, 0.5  # a stage on one node is as slow as that node
SURE_BY_PASSES = 0.6  # passes that vary together: a GPU's clock would look the same


@dataclass(frozen=True)
class _BenignCause:
    kind: SlowdownKind
    loss: float  # share of the job's time
    first: int | None
    reasons: tuple[VerdictReason, ...]
    sure: float = SURE


def explain_without_culprit(
    trace: StepTrace, compute: Floats, compared: PeerComparison, usable: Bools, *, doubtful: bool
) -> StragglerVerdict | None:
    """Return what costs the job most without a culprit; None if nothing significant does.

    Args:
        trace: what was reported.
        compute: (S, R) own seconds.
        compared: slowness against peers.
        usable: (S,) rows past warm-up.
        doubtful: a node may be slow: unequal lengths are then a cause only if token counts show them.
    """
    found = [
        _uneven_stage_cause(trace, compared),
        _uneven_data_cause(trace, compared, usable, doubtful=doubtful),
        *_single_step_causes(trace, compute, compared, usable),
    ]
    causes = [cause for cause in found if cause is not None]
    if not causes:
        return None
    worst = max(causes, key=lambda cause: cause.loss)
    lost = VerdictReason("share_of_time_lost", round(worst.loss, 4))
    first = None if worst.first is None else int(trace.steps[worst.first])
    return StragglerVerdict(worst.kind, (), first, worst.sure, (lost, *worst.reasons))


def _uneven_stage_cause(trace: StepTrace, compared: PeerComparison) -> _BenignCause | None:
    """Detect one stage with more work than the others."""
    if (trace.codes["stage"] == UNKNOWN).all() and (trace.places["pp_rank"] == UNKNOWN).all():
        return None
    level = compared.stage_level
    if len(level) < 2:
        return None
    slowest = max(level, key=lambda number: level[number])
    others = float(np.median([value for number, value in level.items() if number != slowest]))
    over = float(np.expm1(level[slowest] - others))
    if over < STAGE_MIN:
        return None
    reasons = [VerdictReason("slowest_stage_over_the_others", round(over, 4))]
    alone = np.unique(trace.codes["node"][peer_groups(trace) == slowest]).size == 1
    if alone:  # or its nodes are unknown
        reasons.append(VerdictReason(SLOW_NODE_POSSIBLE, 1.0))
    sure = SURE_ONE_NODE if alone else SURE
    return _BenignCause(SlowdownKind.STAGE, over / (1 + over), None, tuple(reasons), sure)


def _uneven_data_cause(
    trace: StepTrace, compared: PeerComparison, usable: Bools, *, doubtful: bool
) -> _BenignCause | None:
    """Detect uneven sequence lengths: forward and backward, and the stages of a pipeline, vary together per step."""
    members = compared.group >= 0
    cells = np.ix_(usable, members) if not members.all() else usable
    load, slow = compared.load[cells], (compared.slow + compared.common)[cells]
    if not np.isfinite(slow).any():
        return None
    slow = slow - nan_median(slow, 0)[None, :]  # what never changes is a rank's own speed
    explained = load - nan_median(load, 1)[:, None]
    varies = float(np.nanstd(explained))  # not robust: one rank with long sequences is enough to delay all
    by_length = varies > DATA_SPREAD
    together = _pass_correlation(trace, compared, usable)
    by_pass = together >= DATA_TOGETHER and robust_spread(slow) > DATA_SPREAD
    by_stage = compared.shared >= DATA_SHARED and robust_spread(slow) > DATA_SPREAD / 2
    if not (by_length or ((by_pass or by_stage) and not doubtful)):
        return None
    uneven = explained + np.nan_to_num(slow) if by_length else slow
    top = np.nanmax(np.where(np.isfinite(uneven), uneven, -np.inf), axis=1)
    loss = float(-np.expm1(-np.median(top[np.isfinite(top)])))
    if loss < DATA_MIN:
        return None
    reasons = (
        VerdictReason("forward_backward_correlation", round(together, 3)),
        VerdictReason("spread_by_length", round(varies, 4)),
        VerdictReason("correlation_of_stages", round(compared.shared, 3)),
    )
    return _BenignCause(SlowdownKind.DATA, loss, None, reasons, SURE if by_length or by_stage else SURE_BY_PASSES)


def _pass_correlation(trace: StepTrace, compared: PeerComparison, usable: Bools) -> float:
    """Return the least correlation of the two passes over all groups of peers; 0 if they were not reported."""
    if "forward_s" not in trace.cells or "backward_s" not in trace.cells:
        return 0.0
    found = []
    for number in np.unique(compared.group[compared.group >= 0]):
        columns = as_slice(np.flatnonzero(compared.group == number))
        passes = [
            excess_over_others(np.log(trace.cells[name][:, columns][usable]), 2) for name in ("forward_s", "backward_s")
        ]
        passes = [values - nan_median(values, 0)[None, :] for values in passes]
        both = np.isfinite(passes[0]) & np.isfinite(passes[1])
        found.append(robust_correlation(passes[0][both], passes[1][both]))
    return min(found, default=0.0)


def _single_step_causes(
    trace: StepTrace, compute: Floats, compared: PeerComparison, usable: Bools
) -> list[_BenignCause]:
    """Detect single slow steps: of varying ranks in the forward pass, or always of the same one."""
    slow = np.where(usable[:, None], compared.slow, np.nan)
    high = find_slow_steps(slow, usable)
    around = np.pad(high, ((2, 2), (0, 0)))
    two_before, before, after, two_after = (around[k : k + high.shape[0]] for k in (0, 1, 3, 4))
    alone = high & ~(before & (two_before | after)) & ~(after & two_after)
    rows, columns = np.nonzero(alone)
    if rows.size < SPIKES:
        return []
    lost = np.zeros(slow.shape[0])
    np.maximum.at(lost, rows, np.expm1(slow[rows, columns]))
    loss = float(lost[usable].mean() / (1 + lost[usable].mean()))
    _, counts = np.unique(columns, return_counts=True)
    if loss < LOSS_MIN:
        return []
    number = VerdictReason("single_slow_steps", float(rows.size))
    if counts.max() >= ONE_RANK * rows.size:
        rank = int(trace.ranks[np.bincount(columns).argmax()])
        return [
            _BenignCause(
                SlowdownKind.APPLICATION, loss, int(rows[0]), (number, VerdictReason("all_of_one_rank", 1.0, rank))
            )
        ]
    forward = _forward_share(trace, compute, rows, columns)
    if counts.size < GC_RANKS or forward is None or forward < GC_FORWARD:
        return []
    ranks = VerdictReason("ranks_with_slow_steps", float(counts.size))
    return [
        _BenignCause(
            SlowdownKind.GC, loss, int(rows[0]), (number, ranks, VerdictReason("forward_share", round(forward, 3)))
        )
    ]


def _forward_share(trace: StepTrace, compute: Floats, rows: Ints, columns: Ints) -> float | None:
    """Return the forward pass's share of the extra time in slow steps."""
    if "forward_s" not in trace.cells:
        return None
    forward = trace.cells["forward_s"]
    more = compute[rows, columns] - nan_median(compute, 0)[columns]
    more_forward = forward[rows, columns] - nan_median(forward, 0)[columns]
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(more > 0, more_forward / more, np.nan)
    return float(np.nanmedian(shares)) if np.isfinite(shares).any() else None
