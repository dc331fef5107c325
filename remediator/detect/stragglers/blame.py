"""From slow ranks to culprits: what moves together is judged together, and what the job did is nobody's fault. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remediator.detect.stragglers.again import SPIKE_SPREADS, again_and_again
from remediator.detect.stragglers.lengths import SHARED_MIN
from remediator.detect.stragglers.onset import Slowness, when_slow
from remediator.detect.stragglers.peers import Compared, tensor_group
from remediator.detect.stragglers.robust import MAD_TO_SIGMA, median, noise, spread
from remediator.detect.stragglers.scan import Suspect
from remediator.detect.stragglers.trace import UNKNOWN, Bools, Floats, Ints, Trace
from remediator.detect.stragglers.verdict import Culprit, Kind, Reason, Verdict

TOGETHER = 0.5  # of the slowest one's slowness: less is not the same trouble
STANDS_OUT, STANDS_OUT_NOISE = 0.03, 5.0
COLUMN_SHARE = 0.75
NODE_SHARE = 0.5
MANY_SHARE, MANY = 1 / 3, 3
EXPLAINS, SPARES = 0.6, 0.25
PARTS = ("forward_s", "backward_s", "data_s")
UNEVEN = 3.0  # times the usual noise: a load that differs from step to step is no broken part


@dataclass(frozen=True)
class Slow:
    """A suspect and when it was slow."""

    suspect: Suspect
    when: Slowness

    @property
    def column(self) -> int:
        """Of the rank in the matrices."""
        return self.suspect.column


def convict(
    trace: Trace, compute: Floats, compared: Compared, suspects: tuple[Suspect, ...], usable: Bools
) -> Verdict | None:
    """Who of the suspects is to blame; None if none of them is, a verdict without culprits if it is clearly the job.

    Args:
        trace: what was reported.
        compute: (S, R) own seconds.
        compared: slowness against peers.
        suspects: from the scan.
        usable: (S,) rows past warm-up.
    """
    if not suspects:
        return None
    rough = {
        int(number): MAD_TO_SIGMA * median(np.abs(compared.slow[:, compared.group == number]), 1)
        for number in np.unique(compared.group[[suspect.column for suspect in suspects]])
    }
    slow = [_since(compared.slow, suspect, usable, rough[int(compared.group[suspect.column])]) for suspect in suspects]
    if _columns_of_data(trace, compared, slow):
        return _verdict(Kind.DATA, trace, [], slow, [Reason("pipelines_slow_in_every_stage", 1.0)])
    if _too_many_from_the_start(trace, compared, slow, usable):
        share = len(slow) / max(1, int((compared.group >= 0).sum()))
        return _verdict(Kind.NOBODY, trace, [], slow, [Reason("slow_since_the_start_share", share)])
    if _duties_of_the_first(trace, compute, compared, slow):
        return _verdict(Kind.APPLICATION, trace, [], slow, [Reason("outside_both_passes_of_the_first_rank", 1.0)])
    culprits, reasons = _within_tensor_groups(trace, compute, compared, slow)
    kind, more = _kind(trace, compute, compared, culprits)
    return _verdict(kind, trace, culprits, slow, [*reasons, *more])


def convict_again(trace: Trace, compute: Floats, compared: Compared, usable: Bools) -> Verdict | None:
    """Who is slow again and again, as a thermal throttle or a bad cable is: never for long; None if nobody is."""
    found = again_and_again(trace, compared.slow, usable, compared.group)
    slow = []
    for each in found:
        first, last = np.flatnonzero(each.rows)[[0, -1]].tolist()
        share = float(each.rows[usable & (np.arange(usable.size) >= first)].mean())
        suspect = Suspect(
            each.column, first, last, each.level, SPIKE_SPREADS, SPIKE_SPREADS, each.chance, own_past=False
        )
        slow.append(Slow(suspect, Slowness(each.rows, first, each.level, share, grows=False)))
    if not slow or min(each.column for each in slow) == 0:
        return None
    kind, reasons = _kind(trace, compute, compared, slow)
    return _verdict(kind, trace, slow, slow, [Reason("slow_again_and_again", float(len(slow))), *reasons])


def _since(residual: Floats, suspect: Suspect, usable: Bools, rough: Floats) -> Slow:
    series = residual[:, suspect.column]
    seen = when_slow(series, suspect.first, suspect.last, suspect.slow, usable, own_past=suspect.own_past, rough=rough)
    return Slow(suspect, seen)


def _verdict(kind: Kind, trace: Trace, culprits: list[Slow], slow: list[Slow], reasons: list[Reason]) -> Verdict:
    about = culprits or slow
    clearest = max(about, key=lambda each: each.suspect.z / each.suspect.bound)
    margin = clearest.suspect.z / clearest.suspect.bound
    sure = 0.99 * (1 - clearest.suspect.chance) * (1 - 0.5 * float(np.exp(-3 * (margin - 1))))
    named = sorted(culprits, key=lambda each: (-each.when.level, each.column))
    numbers = list(reasons)
    for each in named or [clearest]:
        rank = int(trace.ranks[each.column])
        numbers += [
            Reason("slower_than_peers", _round(np.expm1(each.when.level)), rank),
            Reason("spreads_above_peers", _round(each.suspect.z), rank),
            Reason("spreads_needed", _round(each.suspect.bound), rank),
            Reason("share_of_steps_slow", _round(each.when.share), rank),
        ]
    return Verdict(
        verdict=kind,
        culprits=tuple(
            Culprit(int(trace.ranks[each.column]), trace.node_of(each.column), _round(np.expm1(each.when.level)))
            for each in named
        ),
        first_step=int(trace.steps[min(each.when.first for each in about)]),
        confidence=round(sure, 3),
        reasons=tuple(numbers),
    )


def _round(value: float) -> float:
    return round(float(value), 4)


def _columns_of_data(trace: Trace, compared: Compared, slow: list[Slow]) -> bool:
    """Whether all slow ranks are whole pipelines: every stage of them at once works on longer sequences.

    A pipeline that sits on one node of its own, steadily slow, is that node, unless lengths differ in all pipelines.
    """
    dp = trace.places["dp_rank"]
    columns = np.array([each.column for each in slow])
    if (dp[columns] == UNKNOWN).any():
        return False
    for number in np.unique(dp[columns]):
        members = np.flatnonzero((dp == number) & (compared.group >= 0))
        stages = np.unique(compared.group[members] // 2)
        if stages.size < 2 or np.isin(members, columns).sum() < COLUMN_SHARE * members.size:
            return False
        nodes = np.unique(trace.codes["node"][members])
        alone = nodes.size == 1 and nodes[0] != UNKNOWN and compared.shared < SHARED_MIN
        if alone and not _uneven(compared.slow, members, columns):
            return False
    return True


def _duties_of_the_first(trace: Trace, compute: Floats, compared: Compared, slow: list[Slow]) -> bool:
    """Whether only the first rank is slow, and in neither pass: it logs, or saves."""
    if len(slow) != 1 or int(trace.ranks[slow[0].column]) != 0 or {"forward_s", "backward_s"} - set(trace.cells):
        return False
    _, forward, backward, _ = _excess(trace, compute, compared, slow[0])
    return max(forward, backward) < SPARES


def _uneven(residual: Floats, members: Ints, slow: Ints) -> bool:
    others = np.setdiff1d(np.flatnonzero(np.isfinite(residual).any(axis=0)), slow)
    usual = np.nanmedian([noise(residual[:, column]) for column in others[:64]]) if others.size else np.nan
    return bool(np.nanmedian([noise(residual[:, column]) for column in members]) > UNEVEN * usual)


def _too_many_from_the_start(trace: Trace, compared: Compared, slow: list[Slow], usable: Bools) -> bool:
    """Whether so many peers were slow from the start that they may as well be other machines."""
    start = int(np.flatnonzero(usable)[0])
    always = np.array(
        [each.column for each in slow if each.when.first <= start + 5 and each.when.share > 0.8], dtype=int
    )
    for number in np.unique(compared.group[always]):
        own = always[compared.group[always] == number]
        nodes, tensor = trace.codes["node"][own], tensor_group(trace)[own]
        units = np.unique(nodes if (nodes != UNKNOWN).all() else tensor if (tensor >= 0).all() else own)
        if units.size >= MANY and own.size >= MANY_SHARE * (compared.group == number).sum():
            return True
    return False


def _within_tensor_groups(
    trace: Trace, compute: Floats, compared: Compared, slow: list[Slow]
) -> tuple[list[Slow], list[Reason]]:
    """Those of each group that moves together who stand out of it, by their own time or since they wait least.

    The others must wait for the one about as long as they are slow: a whole node that is slow has its slowest rank, too.
    """
    group = tensor_group(trace)
    kept: list[Slow] = []
    reasons: list[Reason] = []
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
        alone = _stands_out(part, members)
        reasons.append(Reason("tensor_group_moves_together", float(members.size)))
        if alone is None and "comm_s" in trace.cells:
            spared = trace.cells["comm_s"][first : last + 1][:, members] / compute[first : last + 1][:, members]
            alone = _stands_out(-spared, members, TOGETHER * float(np.nanmedian(level)))
            if alone is not None:
                reasons.append(Reason("waits_least", 1.0, int(trace.ranks[alone])))
        kept += [each for each in own if alone is None or each.column == alone] or own
    return kept, reasons


def _stands_out(part: Floats, members: Ints, least: float = STANDS_OUT) -> int | None:
    """The one column that lies clearly, and by `least`, above the others of its group, step by step; None if none does."""
    level = np.nanmedian(part, axis=0)
    highest = int(np.nanargmax(level))
    over = part[:, highest] - np.nanmedian(np.delete(part, highest, axis=1), axis=1)
    known = over[np.isfinite(over)]
    second = np.nanmax(np.delete(level, highest))
    sure = STANDS_OUT_NOISE * max(spread(known), 0.002) / np.sqrt(max(known.size, 1))
    return int(members[highest]) if level[highest] - second > max(least, sure) else None


def _kind(trace: Trace, compute: Floats, compared: Compared, culprits: list[Slow]) -> tuple[Kind, list[Reason]]:
    """What of a culprit is slow: host or GPU, and one of the node's ranks or the node."""
    reasons: list[Reason] = []
    host = 0
    for each in culprits:
        why = _host_signs(trace, compute, compared, each)
        host += bool(why)
        reasons += why
    if host * 2 > len(culprits):
        return Kind.HOST_IO, reasons
    columns = np.array([each.column for each in culprits])
    for node in np.unique(trace.codes["node"][columns]):
        everyone = int((trace.codes["node"] == node).sum())
        slow = int((trace.codes["node"][columns] == node).sum())
        if node != UNKNOWN and (slow > 1 or everyone == 1) and slow >= NODE_SHARE * everyone:
            reasons.append(Reason("slow_ranks_of_the_node", float(slow), int(trace.ranks[columns[0]])))
            return Kind.NODE, reasons
    return Kind.GPU, reasons


def _host_signs(trace: Trace, compute: Floats, compared: Compared, each: Slow) -> list[Reason]:
    """Time that went into waiting for data, or into the forward pass alone, as it does when the host is late."""
    rank = int(trace.ranks[each.column])
    own, forward, backward, data = _excess(trace, compute, compared, each)
    if own <= 0:
        return []
    if data > EXPLAINS:
        return [Reason("data_wait_share_of_excess", _round(data), rank)]
    if backward < SPARES * max(forward, 0.0) or max(forward, backward) < SPARES:
        return [Reason("forward_share_of_excess", _round(forward), rank)]
    return []


def _excess(trace: Trace, compute: Floats, compared: Compared, each: Slow) -> tuple[float, float, float, float]:
    """Seconds above the peers while it was slow, and the shares of forward, backward and data (NaN: not reported)."""
    rows, column = each.when.rows, each.column
    peers = np.flatnonzero((compared.group == compared.group[column]) & (np.arange(compute.shape[1]) != column))

    def more(values: Floats) -> float:
        part = values[rows]
        return float(np.nanmedian(part[:, column]) - np.nanmedian(part[:, peers]))

    own = more(compute)
    shares = [more(trace.cells[name]) / own if name in trace.cells else np.nan for name in PARTS]
    return own, shares[0], shares[1], shares[2]
