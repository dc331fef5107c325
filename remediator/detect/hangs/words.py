"""A verdict in sentences, with the numbers it rests on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from remediator.detect.hangs.records import Snapshot, Stuck
from vocabulary.counts import counted

NAMED_MAX = 12
CALLS_MAX = 6


def ranks_text(ranks: Iterable[int]) -> str:
    """The first dozen, and how many more."""
    ranks = tuple(ranks)
    more = f" and {len(ranks) - NAMED_MAX} more" if len(ranks) > NAMED_MAX else ""
    return f"rank{'s' if len(ranks) != 1 else ''} {', '.join(map(str, ranks[:NAMED_MAX]))}{more}"


def stuck_text(snapshot: Snapshot, stuck: Stuck) -> str:
    """One call that stands still."""
    head = f"group {snapshot.groups[stuck.group].label}, {stuck.name} number {stuck.number}:"
    if stuck.odd:
        return f"{head} {ranks_text(stuck.odd)} called something else ({stuck.detail})"
    if stuck.absent:
        return f"{head} {ranks_text(stuck.absent)} not there, {len(stuck.waiting)} waiting"
    if stuck.idle and len(stuck.idle) < len(stuck.waiting):
        running = len(stuck.waiting) - len(stuck.idle)
        return f"{head} {ranks_text(stuck.idle)} queued behind the GPU's earlier work, {running} running it"
    if stuck.left:
        return f"{head} {ranks_text(stuck.waiting)} did not come out, the others did"
    return f"{head} all {len(stuck.waiting)} entered and none came out"


def reasons_of(
    snapshot: Snapshot,
    stuck: Sequence[Stuck],
    culprits: Collection[int],
    root: Stuck | None,
    silent: Collection[int],
) -> tuple[str, ...]:
    """Why these, the call that shows it best first."""
    if not stuck:
        lines = [f"nothing stands still in the records of {counted(len(snapshot.recorded), 'rank')}"]
    else:
        others = [each for each in stuck if each is not root]
        others.sort(key=lambda each: (not set(each.absent) & set(culprits), each.group, each.number))
        shown = [*([root] if root else []), *others]
        lines = [stuck_text(snapshot, each) for each in shown[:CALLS_MAX]]
        if len(shown) > CALLS_MAX:
            lines.append(f"{len(shown) - CALLS_MAX} more calls stand still")
        told = sorted({rank for each in stuck for rank in each.timed_out})
        if told:
            lines.append(f"{ranks_text(told)} reported the time-out, which says who waited and not for whom")
        unsure = sorted({snapshot.groups[each.group].label for each in stuck if not snapshot.groups[each.group].known})
        if unsure:
            lines.append(
                f"the records do not tell who belongs to group {', '.join(unsure)}: ranks never seen in it are not counted"
            )
    if silent:
        lines.append(f"no record of {ranks_text(silent)}: dead, or stopped before writing one")
    return tuple(lines)
