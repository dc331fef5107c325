"""The verdict on one job: a culprit that stands out of its peers, otherwise a benign cause, otherwise none. Pure."""

from __future__ import annotations

import numpy as np

from remediator.detection.stragglers.benign_causes import explain_without_culprit
from remediator.detection.stragglers.culprit_selection import convict_intermittent, convict_suspects
from remediator.detection.stragglers.intermittent_slowness import find_intermittent_ranks
from remediator.detection.stragglers.link_attribution import find_slow_links
from remediator.detection.stragglers.node_comparison import (
    UndecidedNode,
    find_slow_nodes,
    find_undecided_node,
    node_means,
)
from remediator.detection.stragglers.peer_comparison import PEERS_MIN, PeerComparison, compare_ranks, peer_groups
from remediator.detection.stragglers.robust_statistics import excess_over_others, known_median, nan_median
from remediator.detection.stragglers.slowdown_onset import (
    SlowInterval,
    find_global_slowdown,
    find_slow_interval,
    usable_steps,
)
from remediator.detection.stragglers.small_group_baseline import find_slow_small_group
from remediator.detection.stragglers.step_trace import Bools, Floats, Ints, StepTrace, as_slice
from remediator.detection.stragglers.straggler_verdict import (
    Culprit,
    SlowdownKind,
    StragglerVerdict,
    VerdictReason,
    no_culprit_verdict,
)
from remediator.detection.stragglers.window_scan import ScanResult, scan_windows

STEPS_MIN = 15
SEEN_WELL, SEEN_BADLY = 0.10, 0.50


def judge_stragglers(trace: StepTrace, past: Floats | None = None) -> StragglerVerdict:
    """Judge what slows this job down.

    Args:
        trace: what was reported; nothing else is used but
        past: (R,) own seconds of each rank in an earlier trace of the same job, NaN if unknown (`usual_times`).

    Never raises for odd values; pass `trace.until(step)` to judge what was known at a step.
    """
    if trace.steps.size < STEPS_MIN:
        return no_culprit_verdict(
            0.0, VerdictReason("steps", float(trace.steps.size)), VerdictReason("steps_needed", float(STEPS_MIN))
        )
    with np.errstate(all="ignore"):
        usable = usable_steps(trace.began)
        compute = trace.compute()
        if compute is None:
            return _judge_step_time(trace, usable)
        return _judge_compute_times(trace, compute, usable, past)


def usual_times(trace: StepTrace) -> Floats:
    """Return (R,) the median own seconds of each rank past warm-up, NaN if unknown."""
    compute = trace.compute()
    if compute is None:
        return np.full(trace.ranks.size, np.nan)
    return nan_median(compute[usable_steps(trace.began)], 0)


def rank_slowness(trace: StepTrace, since: int | None = None) -> tuple[Floats, Ints]:
    """Return (R,) median slowness of each rank against its peers since a step (0.1: a tenth), NaN if unknown.

    Also returns the (R,) number of its stage and role, for plots.
    """
    with np.errstate(all="ignore"):
        usable = usable_steps(trace.began)
        compute = trace.compute()
        stages = peer_groups(trace)
        if compute is None or not trace.steps.size:
            return np.full(trace.ranks.size, np.nan), stages
        slow = compare_ranks(trace, compute, usable).slow
        rows = usable if since is None else trace.steps >= since
        return np.expm1(nan_median(slow[rows], 0)), stages


def _judge_compute_times(trace: StepTrace, compute: Floats, usable: Bools, past: Floats | None) -> StragglerVerdict:
    compared = compare_ranks(trace, compute, usable)
    seen = scan_windows(compared.slow, usable, compared.group)
    nodes = node_means(trace, compared)
    slow_nodes = find_slow_nodes(compared, nodes, usable)
    guilty = convict_suspects(trace, compute, compared, seen.suspects, slow_nodes, usable)
    if guilty is not None and guilty.culprits:
        return guilty
    half = None if guilty is not None else find_slow_small_group(trace, compute, peer_groups(trace), usable, past)
    if half is not None:
        return half
    again = None if guilty is not None else convict_intermittent(trace, compute, compared, usable)
    if again is not None:
        return again
    everyone = find_global_slowdown(compared.centre, usable)
    if everyone is not None:
        return _global_slowdown_verdict(trace, everyone, "own_time_of_everyone")
    waiting = _judge_data_wait(trace, compute, compared, usable)
    if waiting is not None:
        return waiting
    link = find_slow_links(trace, compute, usable)
    if link is not None:
        return link
    undecided = find_undecided_node(compared, nodes, usable)
    cause = explain_without_culprit(trace, compute, compared, usable, doubtful=undecided is not None)
    if cause is not None and (guilty is None or guilty.verdict is SlowdownKind.NOBODY):
        return cause
    return guilty or _abstain_verdict(trace, compared, seen, usable, undecided)


def _global_slowdown_verdict(
    trace: StepTrace, seen: SlowInterval, name: str, kind: SlowdownKind = SlowdownKind.GLOBAL
) -> StragglerVerdict:
    slower = round(float(np.expm1(seen.level)), 4)
    return StragglerVerdict(kind, (), int(trace.steps[seen.first]), 0.9, (VerdictReason(f"{name}_slower", slower),))


def _judge_step_time(trace: StepTrace, usable: Bools) -> StragglerVerdict:
    """Judge step times: they show that the job slowed down, and when, but all ranks share them, so never the culprit."""
    if "step_s" not in trace.cells:
        return no_culprit_verdict(0.0, VerdictReason("ranks_with_own_time", 0.0))
    centre = nan_median(np.log(trace.cells["step_s"]), 1)
    seen = find_global_slowdown(centre - np.nanmedian(centre), usable)
    reasons = [VerdictReason("only_step_time", 1.0)]
    if seen is None:
        return no_culprit_verdict(0.5, *reasons)
    reasons.append(VerdictReason("step_time_slower", round(float(np.expm1(seen.level)), 4)))
    return StragglerVerdict(SlowdownKind.NOBODY, (), int(trace.steps[seen.first]), 0.5, tuple(reasons))


def _judge_data_wait(
    trace: StepTrace, compute: Floats, compared: PeerComparison, usable: Bools
) -> StragglerVerdict | None:
    """Find ranks that wait for data longer than their peers, or all of them since some step: storage."""
    if "data_s" not in trace.cells:
        return None
    waits = _zero_unknown(trace.cells["data_s"])
    usual = known_median(compute) + known_median(waits)
    share = waits / usual
    beside = _excess_over_peers(share, compared.group)
    found = _name_slow_ranks(trace, beside, usable, compared.group, SlowdownKind.HOST_IO, "waits_for_data_longer")
    if found is not None:
        return found
    again = find_intermittent_ranks(trace, beside, usable, compared.group)
    if again:
        named = tuple(
            Culprit(int(trace.ranks[each.column]), trace.node_of(each.column), round(each.level, 4)) for each in again
        )
        first = min(int(np.flatnonzero(each.rows)[0]) for each in again)
        reason = VerdictReason("waits_for_data_again_and_again", float(len(again)))
        return StragglerVerdict(SlowdownKind.HOST_IO, named, int(trace.steps[first]), 0.9, (reason,))
    everyone = find_global_slowdown(nan_median(share, 1), usable)
    return (
        None
        if everyone is None
        else _global_slowdown_verdict(trace, everyone, "data_wait_of_everyone", SlowdownKind.HOST_IO)
    )


def _zero_unknown(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, np.nan)


def _excess_over_peers(values: Floats, group: Ints) -> Floats:
    beside = np.full_like(values, np.nan)
    for number in np.unique(group[group >= 0]):
        columns = as_slice(np.flatnonzero(group == number))
        beside[:, columns] = excess_over_others(values[:, columns], PEERS_MIN)
    return beside


def _name_slow_ranks(
    trace: StepTrace,
    over: Floats,
    usable: Bools,
    group: Ints,
    kind: SlowdownKind,
    name: str,
) -> StragglerVerdict | None:
    """Build a verdict on ranks whose share of time stands out; `over` is their share above that of their peers."""
    suspects = scan_windows(over, usable, group).suspects
    if not suspects:
        return None
    since = [
        (
            each,
            find_slow_interval(over[:, each.column], each.first, each.last, each.slow, usable, own_past=each.own_past),
        )
        for each in suspects
    ]
    since.sort(key=lambda pair: (-pair[1].level, pair[0].column))
    return StragglerVerdict(
        verdict=kind,
        culprits=tuple(
            Culprit(int(trace.ranks[each.column]), trace.node_of(each.column), round(when.level, 4))
            for each, when in since
        ),
        first_step=int(trace.steps[min(when.first for _, when in since)]),
        confidence=round(0.9 * (1 - max(each.chance for each, _ in since)), 3),
        reasons=tuple(VerdictReason(name, round(when.level, 4), int(trace.ranks[each.column])) for each, when in since),
    )


def _abstain_verdict(
    trace: StepTrace, compared: PeerComparison, seen: ScanResult, usable: Bools, undecided: UndecidedNode | None
) -> StragglerVerdict:
    """Return a verdict without culprit, with the smallest slowdown that would have been detected."""
    judged = int((compared.group >= 0).sum())
    reasons = [VerdictReason("ranks_with_peers", float(judged)), VerdictReason("steps_judged", float(usable.sum()))]
    if compared.products.any():
        reasons.append(VerdictReason("ranks_of_a_slower_product", float(compared.products.sum())))
    if not judged or not seen.visible:
        return no_culprit_verdict(0.0 if not judged else 0.3, *reasons)
    visible = float(np.expm1(max(seen.visible.values())))
    reasons.append(VerdictReason("smallest_slowdown_visible", round(visible, 4)))
    if undecided is not None:
        rank = int(trace.ranks[undecided.column])
        reasons.append(VerdictReason("undecided_node_slower", round(float(np.expm1(undecided.slower)), 4), rank))
        return no_culprit_verdict(0.3, *reasons)
    blind = (visible - SEEN_WELL) / (SEEN_BADLY - SEEN_WELL)
    share = judged / trace.ranks.size
    return no_culprit_verdict(share * float(np.clip(0.95 - 0.65 * blind, 0.3, 0.95)), *reasons)
