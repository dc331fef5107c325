"""Formats a hang verdict as sentences, with its numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from remediator.detection.hangs.call_records import Snapshot, StuckCall
from vocabulary.text.plurals import format_count

NAMED_MAX = 12
CALLS_MAX = 6


def format_ranks(ranks: Iterable[int]) -> str:
    """Format the first dozen ranks, and how many more there are."""
    ranks = tuple(ranks)
    more = f" and {len(ranks) - NAMED_MAX} more" if len(ranks) > NAMED_MAX else ""
    return f"rank{'s' if len(ranks) != 1 else ''} {', '.join(map(str, ranks[:NAMED_MAX]))}{more}"


def describe_stuck_call(snapshot: Snapshot, stuck: StuckCall) -> str:
    """Describe one stuck call."""
    head = f"group {snapshot.groups[stuck.group].label}, {stuck.name} number {stuck.number}:"
    if stuck.odd:
        return f"{head} {format_ranks(stuck.odd)} made a different call ({stuck.detail})"
    if stuck.unfinished:
        others = format_count(stuck.finished, "other")
        behind = f"{format_ranks(stuck.unfinished)} did not come out of a call that {others} came out of"
        return f"{head} {behind}" + (f", {len(stuck.waiting)} waiting" if stuck.waiting else "")
    if stuck.absent:
        return f"{head} {format_ranks(stuck.absent)} missing, {len(stuck.waiting)} waiting"
    if stuck.idle and len(stuck.idle) < len(stuck.waiting):
        running = len(stuck.waiting) - len(stuck.idle)
        return f"{head} {format_ranks(stuck.idle)} queued behind earlier work of the GPU, {running} running it"
    return f"{head} all {len(stuck.waiting)} entered and none finished"


def list_verdict_reasons(
    snapshot: Snapshot,
    stuck: Sequence[StuckCall],
    culprits: Collection[int],
    root: StuckCall | None,
    silent: Collection[int],
) -> tuple[str, ...]:
    """List the reasons, the call that shows the cause best first."""
    if snapshot.moving and not any(each.odd for each in stuck):
        lines = ["ranks made calls until their records were written: the job may be moving; record it again later"]
    elif not stuck:
        lines = [f"no stuck call in the records of {format_count(len(snapshot.recorded), 'rank')}"]
    else:
        others = [each for each in stuck if each is not root]
        others.sort(key=lambda each: (not set(each.absent) & set(culprits), each.group, each.number))
        shown = [*([root] if root else []), *others]
        lines = [describe_stuck_call(snapshot, each) for each in shown[:CALLS_MAX]]
        if len(shown) > CALLS_MAX:
            lines.append(f"{len(shown) - CALLS_MAX} more calls are stuck")
        told = sorted({rank for each in stuck for rank in each.timed_out})
        if told:
            lines.append(f"{format_ranks(told)} reported the timeout; that names a waiting rank, not the culprit")
        if root is not None and not culprits and root.group in snapshot.untimed:
            lines.append(
                "the records do not show which calls the GPUs have begun; with TORCH_NCCL_ENABLE_TIMING=1 they do, and a GPU"
                " that hangs in its own kernel can be told from the network"
            )
        unsure = sorted({snapshot.groups[each.group].label for each in stuck if not snapshot.groups[each.group].known})
        if unsure:
            lines.append(
                f"the records do not list the members of group {', '.join(unsure)}: ranks that never appear in it are not counted"
            )
    if silent:
        lines.append(f"no record of {format_ranks(silent)}: dead, or stopped before writing one")
    return tuple(lines)
