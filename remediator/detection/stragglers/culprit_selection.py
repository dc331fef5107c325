"""From slow ranks to culprits: ranks that slow down together are judged together, and job-wide effects blame no rank.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from remediator.detection.stragglers.intermittent_slowness import SPIKE_SPREADS, find_intermittent_ranks
from remediator.detection.stragglers.node_comparison import SlowNode
from remediator.detection.stragglers.peer_comparison import PeerComparison, tensor_parallel_groups
from remediator.detection.stragglers.robust_statistics import (
    MAD_TO_SIGMA,
    known_median,
    nan_median,
    robust_spread,
    step_noise,
)
from remediator.detection.stragglers.sequence_length_model import SHARED_MIN
from remediator.detection.stragglers.slowdown_onset import SlowInterval, find_slow_interval
from remediator.detection.stragglers.step_trace import UNKNOWN, Bools, Floats, Ints, StepTrace, as_slice
from remediator.detection.stragglers.straggler_verdict import Culprit, SlowdownKind, StragglerVerdict, VerdictReason
from remediator.detection.stragglers.window_scan import SlowSuspectWindow

TOGETHER = 0.5  # of the slowest one's slowness: less is a different problem
STANDS_OUT, STANDS_OUT_NOISE = 0.03, 5.0
COLUMN_SHARE = 0.75
NODE_SHARE = 0.5
MANY_SHARE, MANY = 1 / 3, 3
EXPLAINS, SPARES = 0.6, 0.25
PARTS = ("forward_s", "backward_s", "data_s")
UNEVEN = 3.0  # times the usual noise: load that differs from step to step is no broken part


@dataclass(frozen=True)
class SlowSuspect:
    """A suspect and when it was slow."""

    suspect: SlowSuspectWindow
    when: SlowInterval

    @property
    def column(self) -> int:
        """The rank's column in the matrices."""
        return self.suspect.column


def convict_suspects(
    trace: StepTrace,
    compute: Floats,
    compared: PeerComparison,
    suspects: tuple[SlowSuspectWindow, ...],
    nodes: list[SlowNode],
    usable: Bools,
) -> StragglerVerdict | None:
    """Return the culprits among the suspects.

    None if there are none, a verdict without culprits if the job is the cause.

    Args:
        trace: what was reported.
        compute: (S, R) own seconds.
        compared: slowness against peers.
        suspects: from the scan.
        nodes: that are slow as a whole, whether or not their ranks are among the suspects.
        usable: (S,) rows past warm-up.
    """
    whole = {column: node for node in nodes for column in node.columns.tolist()}
    suspects = tuple(suspect for suspect in suspects if suspect.column not in whole)
    if not suspects and not whole:
        return None
    rough = {
        int(number): MAD_TO_SIGMA
        * nan_median(np.abs(compared.slow[:, as_slice(np.flatnonzero(compared.group == number))]), 1)
        for number in np.unique(compared.group[[suspect.column for suspect in suspects]])
    }
    slow = [
        _measure_suspect(compared.slow, suspect, usable, rough[int(compared.group[suspect.column])])
        for suspect in suspects
    ]
    slow += [SlowSuspect(replace(node.window, column=column), node.when) for column, node in whole.items()]
    if _are_whole_pipelines(trace, compared, slow):
        return _build_verdict(SlowdownKind.DATA, trace, [], slow, [VerdictReason("pipelines_slow_in_every_stage", 1.0)])
    if _are_initially_slow_machines(trace, compared, slow, usable):
        share = len(slow) / max(1, int((compared.group >= 0).sum()))
        return _build_verdict(
            SlowdownKind.NOBODY, trace, [], slow, [VerdictReason("slow_since_the_start_share", share)]
        )
    if _is_first_rank_duty(trace, compute, compared, slow):
        return _build_verdict(
            SlowdownKind.APPLICATION, trace, [], slow, [VerdictReason("outside_both_passes_of_the_first_rank", 1.0)]
        )
    culprits, reasons = _tensor_group_outliers(trace, compute, compared, slow)
    kind, more = _culprit_kind(trace, compute, compared, culprits)
    return _build_verdict(kind, trace, culprits, slow, [*reasons, *more])


def convict_intermittent(
    trace: StepTrace, compute: Floats, compared: PeerComparison, usable: Bools
) -> StragglerVerdict | None:
    """Return ranks that are slow repeatedly but never for long, as by a thermal throttle or a bad cable.

    None if there are none.
    """
    found = find_intermittent_ranks(trace, compared.slow, usable, compared.group)
    slow = []
    for each in found:
        first, last = np.flatnonzero(each.rows)[[0, -1]].tolist()
        share = float(each.rows[usable & (np.arange(usable.size) >= first)].mean())
        suspect = SlowSuspectWindow(
            each.column, first, last, each.level, SPIKE_SPREADS, SPIKE_SPREADS, each.chance, own_past=False
        )
        slow.append(SlowSuspect(suspect, SlowInterval(each.rows, first, each.level, share, grows=False)))
    if not slow or min(each.column for each in slow) == 0:
        return None
    kind, reasons = _culprit_kind(trace, compute, compared, slow)
    return _build_verdict(kind, trace, slow, slow, [VerdictReason("slow_again_and_again", float(len(slow))), *reasons])


def _measure_suspect(residual: Floats, suspect: SlowSuspectWindow, usable: Bools, rough: Floats) -> SlowSuspect:
    series = residual[:, suspect.column]
    seen = find_slow_interval(
        series, suspect.first, suspect.last, suspect.slow, usable, own_past=suspect.own_past, rough=rough
    )
    return SlowSuspect(suspect, seen)


def _build_verdict(
    kind: SlowdownKind,
    trace: StepTrace,
    culprits: list[SlowSuspect],
    slow: list[SlowSuspect],
    reasons: list[VerdictReason],
) -> StragglerVerdict:
    about = culprits or slow
    clearest = max(about, key=lambda each: each.suspect.z / each.suspect.bound)
    margin = clearest.suspect.z / clearest.suspect.bound
    sure = 0.99 * (1 - clearest.suspect.chance) * (1 - 0.5 * float(np.exp(-3 * (margin - 1))))
    named = sorted(culprits, key=lambda each: (-each.when.level, each.column))
    numbers = list(reasons)
    for each in named or [clearest]:
        rank = int(trace.ranks[each.column])
        numbers += [
            VerdictReason("slower_than_peers", _round_value(np.expm1(each.when.level)), rank),
            VerdictReason("spreads_above_peers", _round_value(each.suspect.z), rank),
            VerdictReason("spreads_needed", _round_value(each.suspect.bound), rank),
            VerdictReason("share_of_steps_slow", _round_value(each.when.share), rank),
        ]
    return StragglerVerdict(
        verdict=kind,
        culprits=tuple(
            Culprit(int(trace.ranks[each.column]), trace.node_of(each.column), _round_value(np.expm1(each.when.level)))
            for each in named
        ),
        first_step=int(trace.steps[min(each.when.first for each in about)]),
        confidence=round(sure, 3),
        reasons=tuple(numbers),
    )


def _round_value(value: float) -> float:
    return round(float(value), 4)


def _are_whole_pipelines(trace: StepTrace, compared: PeerComparison, slow: list[SlowSuspect]) -> bool:
    """Return whether the slow ranks form whole pipelines: all of their stages process longer sequences.

    A steadily slow pipeline on a node of its own means a slow node, unless lengths differ in all pipelines.
    """
    dp = trace.places["dp_rank"]
    columns = np.array([each.column for each in slow])
    if (dp[columns] == UNKNOWN).any():
        return False
    for number in np.unique(dp[columns]):
        members = np.flatnonzero((dp == number) & (compared.group >= 0))
        stages = np.unique(compared.group[members] // 2)
        along = np.isin(members, columns)
        if compared.shared >= SHARED_MIN:  # then they count although they do not stand out
            clearest = max((each for each in slow if dp[each.column] == number), key=lambda each: each.when.level)
            level = nan_median(compared.slow[clearest.when.rows][:, members], 0)
            along |= level >= TOGETHER * clearest.when.level
        if stages.size < 2 or along.sum() < COLUMN_SHARE * members.size:
            return False
        nodes = np.unique(trace.codes["node"][members])
        alone = nodes.size == 1 and nodes[0] != UNKNOWN and compared.shared < SHARED_MIN
        if alone and not _is_uneven(compared.slow, members, columns):
            return False
    return True


def _is_first_rank_duty(trace: StepTrace, compute: Floats, compared: PeerComparison, slow: list[SlowSuspect]) -> bool:
    """Return whether only the first rank is slow, and in neither pass: it logs or saves."""
    if len(slow) != 1 or int(trace.ranks[slow[0].column]) != 0 or {"forward_s", "backward_s"} - set(trace.cells):
        return False
    _, forward, backward, _ = _excess_times(trace, compute, compared, slow[0])
    return max(forward, backward) < SPARES


def _is_uneven(residual: Floats, members: Ints, slow: Ints) -> bool:
    others = np.setdiff1d(np.flatnonzero(np.isfinite(residual).any(axis=0)), slow)
    usual = np.nanmedian([step_noise(residual[:, column]) for column in others[:64]]) if others.size else np.nan
    return bool(np.nanmedian([step_noise(residual[:, column]) for column in members]) > UNEVEN * usual)


def _are_initially_slow_machines(
    trace: StepTrace, compared: PeerComparison, slow: list[SlowSuspect], usable: Bools
) -> bool:
    """Return whether so many peers were slow from the start that they may be another type of machine."""
    start = int(np.flatnonzero(usable)[0])
    always = np.array(
        [each.column for each in slow if each.when.first <= start + 5 and each.when.share > 0.8], dtype=int
    )
    for number in np.unique(compared.group[always]):
        own = always[compared.group[always] == number]
        nodes, tensor = trace.codes["node"][own], tensor_parallel_groups(trace)[own]
        units = np.unique(nodes if (nodes != UNKNOWN).all() else tensor if (tensor >= 0).all() else own)
        if units.size >= MANY and own.size >= MANY_SHARE * (compared.group == number).sum():
            return True
    return False


def _tensor_group_outliers(
    trace: StepTrace, compute: Floats, compared: PeerComparison, slow: list[SlowSuspect]
) -> tuple[list[SlowSuspect], list[VerdictReason]]:
    """Return the members of each tensor-parallel group that stand out, by own time or by waiting least.

    The others must wait for the culprit about as long as they are slow: a node that is slow as a whole has a slowest
    rank, too.
    """
    group = tensor_parallel_groups(trace)
    kept: list[SlowSuspect] = []
    reasons: list[VerdictReason] = []
    for number in sorted({int(group[each.column]) for each in slow}):
        own = [each for each in slow if group[each.column] == number]
        members = np.flatnonzero(group == number)
        if number < 0 or members.size < 2:
            kept += own
            continue
        first, last = min(e.suspect.first for e in own), max(e.suspect.last for e in own)
        part = compared.slow[first : last + 1][:, members]
        level = np.nanmedian(part, axis=0)
        if np.sum(level >= TOGETHER * np.nanmax(level)) < COLUMN_SHARE * members.size:
            kept += [each for each in own if each.when.level >= TOGETHER * np.nanmax(level)]
            continue
        alone = _outlier_column(part, members)
        reasons.append(VerdictReason("tensor_group_moves_together", float(members.size)))
        if alone is None and "comm_s" in trace.cells:
            spared = trace.cells["comm_s"][first : last + 1][:, members] / compute[first : last + 1][:, members]
            alone = _outlier_column(-spared, members, TOGETHER * float(np.nanmedian(level)))
            if alone is not None:
                reasons.append(VerdictReason("waits_least", 1.0, int(trace.ranks[alone])))
        kept += [each for each in own if alone is None or each.column == alone] or own
    return kept, reasons


def _outlier_column(part: Floats, members: Ints, least: float = STANDS_OUT) -> int | None:
    """Return the column that is clearly, and by `least`, above the others of its group at each step; None if none is."""
    level = np.nanmedian(part, axis=0)
    highest = int(np.nanargmax(level))
    over = part[:, highest] - np.nanmedian(np.delete(part, highest, axis=1), axis=1)
    known = over[np.isfinite(over)]
    second = np.nanmax(np.delete(level, highest))
    sure = STANDS_OUT_NOISE * max(robust_spread(known), 0.002) / np.sqrt(max(known.size, 1))
    return int(members[highest]) if level[highest] - second > max(least, sure) else None


def _culprit_kind(
    trace: StepTrace, compute: Floats, compared: PeerComparison, culprits: list[SlowSuspect]
) -> tuple[SlowdownKind, list[VerdictReason]]:
    """Return what of a culprit is slow: host or GPU, one rank or the node."""
    reasons: list[VerdictReason] = []
    host = 0
    for each in culprits:
        why = _host_side_reasons(trace, compute, compared, each)
        host += bool(why)
        reasons += why
    if host * 2 > len(culprits):
        return SlowdownKind.HOST_IO, reasons
    columns = np.array([each.column for each in culprits])
    for node in np.unique(trace.codes["node"][columns]):
        everyone = int((trace.codes["node"] == node).sum())
        slow = int((trace.codes["node"][columns] == node).sum())
        if node != UNKNOWN and (slow > 1 or everyone == 1) and slow >= NODE_SHARE * everyone:
            reasons.append(VerdictReason("slow_ranks_of_the_node", float(slow), int(trace.ranks[columns[0]])))
            return SlowdownKind.NODE, reasons
    return SlowdownKind.GPU, reasons


def _host_side_reasons(
    trace: StepTrace, compute: Floats, compared: PeerComparison, each: SlowSuspect
) -> list[VerdictReason]:
    """Return times spent waiting for data, or in the forward pass alone, which point to a slow host."""
    rank = int(trace.ranks[each.column])
    own, forward, backward, data = _excess_times(trace, compute, compared, each)
    if own <= 0:
        return []
    if data > EXPLAINS:
        return [VerdictReason("data_wait_share_of_excess", _round_value(data), rank)]
    if backward < SPARES * max(forward, 0.0) or max(forward, backward) < SPARES:
        return [VerdictReason("forward_share_of_excess", _round_value(forward), rank)]
    return []


def _excess_times(
    trace: StepTrace, compute: Floats, compared: PeerComparison, each: SlowSuspect
) -> tuple[float, float, float, float]:
    """Return seconds above the peers while slow, and the shares of forward, backward and data (NaN: not reported)."""
    rows, column = np.flatnonzero(each.when.rows), each.column
    peers = np.flatnonzero((compared.group == compared.group[column]) & (np.arange(compute.shape[1]) != column))

    def more(values: Floats) -> float:
        return known_median(values[rows, column]) - known_median(values[np.ix_(rows, peers)])

    own = more(compute)
    shares = [more(trace.cells[name]) / own if name in trace.cells else np.nan for name in PARTS]
    return own, shares[0], shares[1], shares[2]
