"""The verdict on one job: a culprit that stands out of its peers, else what explains the time, else nobody. Pure."""

from __future__ import annotations

import numpy as np

from remediator.detect.stragglers.again import again_and_again
from remediator.detect.stragglers.blame import convict, convict_again
from remediator.detect.stragglers.halves import slow_half
from remediator.detect.stragglers.innocent import explain
from remediator.detect.stragglers.links import who_shares
from remediator.detect.stragglers.onset import Slowness, everyone_slower, usable_steps, when_slow
from remediator.detect.stragglers.peers import PEERS_MIN, Compared, compare, groups_of
from remediator.detect.stragglers.robust import beside_the_others, median
from remediator.detect.stragglers.scan import Scan, Suspect, scan
from remediator.detect.stragglers.trace import Bools, Floats, Ints, Trace
from remediator.detect.stragglers.verdict import Culprit, Kind, Reason, Verdict, nobody

STEPS_MIN = 15
EXCUSE_SHARE = 0.3
SEEN_WELL, SEEN_BADLY = 0.10, 0.50


def judge(trace: Trace) -> Verdict:
    """Who or what slows this job down, by everything in `trace` and nothing else.

    Never raises for odd values; `trace.until(step)` asks what could be known at a step.
    """
    if trace.steps.size < STEPS_MIN:
        return nobody(0.0, Reason("steps", float(trace.steps.size)), Reason("steps_needed", float(STEPS_MIN)))
    with np.errstate(all="ignore"):
        usable = usable_steps(trace.began)
        compute = trace.compute()
        if compute is None:
            return _only_step_time(trace, usable)
        return _judge(trace, compute, usable)


def slowness(trace: Trace, since: int | None = None) -> tuple[Floats, Ints]:
    """(R,) median slowness of each rank against its peers since a step (0.1: a tenth), NaN where nobody can tell.

    Also the (R,) number of its stage and role, for a picture.
    """
    with np.errstate(all="ignore"):
        usable = usable_steps(trace.began)
        compute = trace.compute()
        stages = groups_of(trace)
        if compute is None or not trace.steps.size:
            return np.full(trace.ranks.size, np.nan), stages
        slow = compare(trace, compute, usable).slow
        rows = usable if since is None else trace.steps >= since
        return np.expm1(median(slow[rows], 0)), stages


def _judge(trace: Trace, compute: Floats, usable: Bools) -> Verdict:
    compared = compare(trace, compute, usable)
    seen = scan(compared.slow, usable, compared.group)
    guilty = convict(trace, compute, compared, seen.suspects, usable)
    if guilty is not None and guilty.culprits:
        return guilty
    half = None if guilty is not None else slow_half(trace, compute, compared.group, usable)
    if half is not None:
        return half
    again = None if guilty is not None else convict_again(trace, compute, compared, usable)
    if again is not None:
        return again
    everyone = everyone_slower(compared.centre, usable)
    if everyone is not None:
        return _global(trace, everyone, "own_time_of_everyone")
    waiting = _data_wait(trace, compute, compared, usable)
    if waiting is not None:
        return waiting
    link = _slow_link(trace, compute, compared, usable) or _slow_links(trace, compute, usable)
    if link is not None:
        return link
    cause = explain(trace, compute, compared, usable)
    if cause is not None and (guilty is None or guilty.verdict is Kind.NOBODY):
        return cause
    return guilty or _abstain(trace, compared, seen, usable)


def _global(trace: Trace, seen: Slowness, name: str, kind: Kind = Kind.GLOBAL) -> Verdict:
    slower = round(float(np.expm1(seen.level)), 4)
    return Verdict(kind, (), int(trace.steps[seen.first]), 0.9, (Reason(f"{name}_slower", slower),))


def _only_step_time(trace: Trace, usable: Bools) -> Verdict:
    """Step time says that something happened, and when; all ranks share it, so never who did it."""
    if "step_s" not in trace.cells:
        return nobody(0.0, Reason("ranks_with_own_time", 0.0))
    centre = median(np.log(trace.cells["step_s"]), 1)
    seen = everyone_slower(centre - np.nanmedian(centre), usable)
    reasons = [Reason("only_step_time", 1.0)]
    if seen is None:
        return nobody(0.5, *reasons)
    reasons.append(Reason("step_time_slower", round(float(np.expm1(seen.level)), 4)))
    return Verdict(Kind.NOBODY, (), int(trace.steps[seen.first]), 0.5, tuple(reasons))


def _data_wait(trace: Trace, compute: Floats, compared: Compared, usable: Bools) -> Verdict | None:
    """Ranks that wait for data longer than their peers do, or all of them since some step: storage."""
    if "data_s" not in trace.cells:
        return None
    waits = _to_nothing_known(trace.cells["data_s"])
    usual = float(np.nanmedian(compute) + np.nanmedian(waits))
    share = waits / usual
    beside = _beside(share, compared.group)
    found = _named(trace, beside, usable, compared.group, Kind.HOST_IO, "waits_for_data_longer")
    if found is not None:
        return found
    again = again_and_again(trace, beside, usable, compared.group)
    if again:
        named = tuple(
            Culprit(int(trace.ranks[each.column]), trace.node_of(each.column), round(each.level, 4)) for each in again
        )
        first = min(int(np.flatnonzero(each.rows)[0]) for each in again)
        reason = Reason("waits_for_data_again_and_again", float(len(again)))
        return Verdict(Kind.HOST_IO, named, int(trace.steps[first]), 0.9, (reason,))
    everyone = everyone_slower(median(share, 1), usable)
    return None if everyone is None else _global(trace, everyone, "data_wait_of_everyone", Kind.HOST_IO)


def _to_nothing_known(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, np.nan)


def _beside(values: Floats, group: Ints) -> Floats:
    beside = np.full_like(values, np.nan)
    for number in np.unique(group[group >= 0]):
        columns = np.flatnonzero(group == number)
        beside[:, columns] = beside_the_others(values[:, columns], PEERS_MIN)
    return beside


def _named(
    trace: Trace, over: Floats, usable: Bools, group: Ints, kind: Kind, name: str, excused: Floats | None = None
) -> Verdict | None:
    """A verdict on the ranks whose share of time stands out; `over` is their share above that of their peers."""
    suspects = [
        each for each in scan(over, usable, group).suspects if excused is None or not _excused(over, excused, each)
    ]
    if not suspects:
        return None
    since = [
        (each, when_slow(over[:, each.column], each.first, each.last, each.slow, usable, own_past=each.own_past))
        for each in suspects
    ]
    since.sort(key=lambda pair: (-pair[1].level, pair[0].column))
    return Verdict(
        verdict=kind,
        culprits=tuple(
            Culprit(int(trace.ranks[each.column]), trace.node_of(each.column), round(when.level, 4))
            for each, when in since
        ),
        first_step=int(trace.steps[min(when.first for _, when in since)]),
        confidence=round(0.9 * (1 - max(each.chance for each, _ in since)), 3),
        reasons=tuple(Reason(name, round(when.level, 4), int(trace.ranks[each.column])) for each, when in since),
    )


def _excused(over: Floats, excused: Floats, suspect: Suspect) -> bool:
    rows = slice(suspect.first, suspect.last + 1)
    return bool(np.nanmean(excused[rows, suspect.column]) > EXCUSE_SHARE * np.nanmean(over[rows, suspect.column]))


def _slow_link(trace: Trace, compute: Floats, compared: Compared, usable: Bools) -> Verdict | None:
    """Ranks that communicate longer and did not just wait: who waits more because it computed less is a victim."""
    if "comm_s" not in trace.cells:
        return None
    comm = trace.cells["comm_s"]
    usual = float(np.nanmedian(compute) + np.nanmedian(comm))
    share = comm / usual
    rested = np.clip(-_beside(compute / usual, compared.group), 0.0, None)
    own = share - median(share[usable][: max(5, int(usable.sum()) // 4)], 0)[None, :]
    everyone = np.zeros(trace.ranks.size, dtype=np.int64)
    against_job = own - median(own, 1)[:, None] if trace.ranks.size >= PEERS_MIN else np.full_like(own, np.nan)
    looks = ((_beside(share, compared.group), compared.group), (against_job, everyone))
    best: Verdict | None = None
    for over, group in looks:
        found = _named(trace, over, usable, group, Kind.LINK, "communicates_longer", rested)
        if found is not None and (best is None or len(found.culprits) > len(best.culprits)):
            best = found
    return None if best is None else _share_of_blame(trace, best)


def _slow_links(trace: Trace, compute: Floats, usable: Bools) -> Verdict | None:
    """Transfers that take longer for all since some step; the rank that comes last waits for nobody, so the least is looked at."""
    if "comm_s" not in trace.cells:
        return None
    share = trace.cells["comm_s"] / float(np.nanmedian(compute))
    least = np.min(np.where(np.isfinite(share), share, np.inf), axis=1)
    everyone = everyone_slower(_to_nothing_known(least), usable)
    return None if everyone is None else _global(trace, everyone, "transfers_of_everyone", Kind.LINK)


def _share_of_blame(trace: Trace, found: Verdict) -> Verdict:
    columns = [int(np.searchsorted(trace.ranks, culprit.rank)) for culprit in found.culprits]
    blamed = who_shares(trace, columns)
    if blamed.slow_groups == 0:  # slow by itself, not as part of a ring
        return found
    numbers = (
        Reason("slow_groups", float(blamed.slow_groups)),
        Reason("slow_groups_explained", float(blamed.explained)),
    )
    named = {int(trace.ranks[column]) for column in blamed.columns}
    culprits = tuple(culprit for culprit in found.culprits if culprit.rank in named)
    sure = found.confidence if culprits else 0.5 * found.confidence
    return Verdict(Kind.LINK, culprits, found.first_step, round(sure, 3), (*numbers, *found.reasons))


def _abstain(trace: Trace, compared: Compared, seen: Scan, usable: Bools) -> Verdict:
    """Nobody; with what would have been seen, since a blind witness clears nobody."""
    judged = int((compared.group >= 0).sum())
    reasons = [Reason("ranks_with_peers", float(judged)), Reason("steps_judged", float(usable.sum()))]
    if compared.products.any():
        reasons.append(Reason("ranks_of_a_slower_product", float(compared.products.sum())))
    if not judged or not seen.visible:
        return nobody(0.0 if not judged else 0.3, *reasons)
    visible = float(np.expm1(max(seen.visible.values())))
    reasons.append(Reason("smallest_slowdown_visible", round(visible, 4)))
    blind = (visible - SEEN_WELL) / (SEEN_BADLY - SEEN_WELL)
    share = judged / trace.ranks.size
    return nobody(share * float(np.clip(0.95 - 0.65 * blind, 0.3, 0.95)), *reasons)
