"""Drains many nodes together: one update for each cause, between two queries of all nodes.

Slurm keeps one reason for each update, so the nodes share one that names their rule. Each node's incident is in the
audit log, and ``healthctl nodes show NODE`` shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec

from remediator.model.scheduler_hold import (
    REASON_PREFIX,
    ActionOutcome,
    ActionResult,
    HoldOwner,
    SchedulerNodeState,
)
from remediator.schedulers.scheduler_protocol import MayBegin, NodeCordon, check_cordon, format_own_reason
from remediator.schedulers.slurm.controller_protocol import CommandDeadline, SlurmController, SlurmError

UPDATES_MAX = 8  # between the two queries: each makes the first one older
Look = Callable[[Collection[str], CommandDeadline], Mapping[str, SchedulerNodeState]]


class SharedDrain(msgspec.Struct, frozen=True):
    """Nodes that get one reason, and why Slurm refused the update; empty if it did not."""

    cordons: tuple[NodeCordon, ...]
    reason: str
    refused: str = ""


class CordonBatch:
    """Cordons of one cause. `look` returns the named nodes in one query, or raises SlurmError.

    `one_by_one` are the cordons that remain in the end.
    """

    def __init__(self, slurm: SlurmController, look: Look, deadline_s: float) -> None:
        self.one_by_one: list[NodeCordon] = []
        self._slurm = slurm
        self._look = look
        self._deadline_s = deadline_s

    def cordon(
        self, cause: str, cordons: Sequence[NodeCordon], may_begin: MayBegin
    ) -> Iterator[tuple[str, ActionOutcome]]:
        """Query all nodes, drain those that may be drained, query again."""
        allowed = frozenset(may_begin([each.node for each in cordons]))
        wanted = [each for each in cordons if each.node in allowed]
        if len(wanted) < 2:
            self.one_by_one += wanted
            return
        due = CommandDeadline(self._deadline_s)
        try:
            before = self._look(allowed, due)
        except SlurmError as error:
            yield from _failed(wanted, str(error))
            return
        early = {each.node: check_cordon(before[each.node]) for each in wanted}
        free = [each for each in wanted if early[each.node] is None]
        drains = [self._drain(part, due) for part in self._parts(cause, free, before)]
        confirmed = self._confirmed(drains, due)  # before anything else is done with an answer
        yield from ((node, answer) for node, answer in early.items() if answer is not None)
        yield from confirmed

    def _confirmed(self, drains: Sequence[SharedDrain], due: CommandDeadline) -> list[tuple[str, ActionOutcome]]:
        if not drains:
            return []
        try:
            after = self._look([each.node for drain in drains for each in drain.cordons], due)
        except SlurmError as error:
            return list(_unconfirmed(drains, str(error)))
        return [outcome for drain in drains for outcome in self._settled(drain, after)]

    def _parts(
        self, cause: str, cordons: Sequence[NodeCordon], before: Mapping[str, SchedulerNodeState]
    ) -> list[SharedDrain]:
        """Group nodes by what Slurm itself says of them: its text is kept behind ours. Lone nodes go one by one."""
        by_text: dict[str, list[NodeCordon]] = {}
        for each in cordons:
            hold = before[each.node]
            by_text.setdefault(hold.reason if hold.owner is HoldOwner.SCHEDULER else "", []).append(each)
        largest = sorted(by_text, key=lambda text: -len(by_text[text]))
        shared = [text for text in largest[:UPDATES_MAX] if len(by_text[text]) > 1]
        self.one_by_one += [each for text in by_text if text not in shared for each in by_text[text]]
        return [
            SharedDrain(tuple(by_text[text]), format_shared_reason(cause, len(by_text[text]), text)) for text in shared
        ]

    def _drain(self, part: SharedDrain, due: CommandDeadline) -> SharedDrain:
        try:
            self._slurm.drain_list([each.node for each in part.cordons], part.reason, due)
        except SlurmError as error:
            return msgspec.structs.replace(part, refused=str(error))
        return part

    def _settled(
        self, drain: SharedDrain, after: Mapping[str, SchedulerNodeState]
    ) -> Iterator[tuple[str, ActionOutcome]]:
        """Yield what the second query shows; nodes that a refused update left out go one by one."""
        for each in drain.cordons:
            hold = after[each.node]
            if hold.owner is HoldOwner.OPERATOR:
                yield each.node, refuse_taken_over(hold)
            elif drain.refused and hold.owner is not HoldOwner.US:
                self.one_by_one.append(each)
            else:
                yield each.node, _done(each, drain)


def format_shared_reason(cause: str, nodes: int, of_slurm: str = "") -> str:
    """Return the reason of several nodes: the cause first, as ``sinfo -R`` shows 20 characters."""
    behind = f" (Slurm: {of_slurm})" if of_slurm else ""
    return format_own_reason(f"{REASON_PREFIX} {cause} on {nodes} nodes; incident: healthctl nodes show NODE{behind}")


def refuse_taken_over(hold: SchedulerNodeState) -> ActionOutcome:
    """Return the answer to a change between which and our look an operator took the node over."""
    return ActionOutcome(ActionResult.REFUSED, f"an operator took over {hold.node} at the same moment: {hold.reason}")


def _done(cordon: NodeCordon, drain: SharedDrain) -> ActionOutcome:
    return ActionOutcome(
        ActionResult.DONE, f"Slurm drains {cordon.node} and {len(drain.cordons) - 1} more: {drain.reason}"
    )


def _failed(cordons: Sequence[NodeCordon], why: str) -> Iterator[tuple[str, ActionOutcome]]:
    return ((each.node, ActionOutcome(ActionResult.FAILED, why)) for each in cordons)


def _unconfirmed(drains: Sequence[SharedDrain], why: str) -> Iterator[tuple[str, ActionOutcome]]:
    """Yield outcomes without a second query: what Slurm accepted is done, the rest is tried again."""
    for drain in drains:
        if drain.refused:
            yield from _failed(drain.cordons, f"{drain.refused}; {why}")
        else:
            yield from ((each.node, _done(each, drain)) for each in drain.cordons)
