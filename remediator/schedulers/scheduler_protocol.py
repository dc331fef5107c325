"""The scheduler interface: a state to *hold*, requested repeatedly until it is confirmed.

The central rule is ownership: an operator's own drain wins, and we lift only what we placed, unless an operator
requests it by name. The functions below are that rule; every backend applies them to the *current* node right before it
acts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Protocol, runtime_checkable

import msgspec

from remediator.model.node_location import NodeLocation
from remediator.model.scheduler_hold import REASON_PREFIX, ActionOutcome, ActionResult, HoldOwner, SchedulerNodeState

REASON_LENGTH_MAX = 250

MayBegin = Callable[[Collection[str]], Collection[str]]  # of these nodes, those whose cordon may still begin


class NodeCordon(msgspec.Struct, frozen=True):
    """One cordon of several that are due together.

    `reason` names the node's own incident, as in `Scheduler.cordon`. `cause` names what many nodes have in common, their
    rule; empty if nothing.
    """

    node: str
    reason: str
    cause: str = ""


class Scheduler(Protocol):
    """A scheduler. No call raises for outside failures, and each ends within the backend's own deadline."""

    def observe(self, nodes: Collection[str]) -> dict[str, SchedulerNodeState]:
        """Return every one of `nodes` as the scheduler sees it now, in one call.

        A node whose state is unknown (scheduler down, name unknown) has `schedulable` None and a reason; if the
        scheduler answered that it has no such node, `known` is False.
        """

    def cordon(self, node: str, reason: str) -> ActionOutcome:
        """Cordon `node`: running work may end, no new work starts. `reason` begins with our prefix."""

    def resume(self, node: str) -> ActionOutcome:
        """Lift our own hold on `node`."""

    def cordon_for(self, node: str, reason: str) -> ActionOutcome:
        """Cordon `node` in an operator's name, for their `reason`: the hold is then the operator's."""

    def uncordon_for(self, node: str, seen: str) -> ActionOutcome:
        """Uncordon `node` for an operator, whoever holds it, if the reason is still the one they saw."""

    def evict(self, node: str) -> ActionOutcome:
        """Evict what still runs on a node that we hold; called only where `SchedulerNodeState.evictable` is set."""


@runtime_checkable
class CordonsTogether(Protocol):
    """A scheduler that cordons many nodes with fewer calls than one by one."""

    def cordon_many(self, cordons: Sequence[NodeCordon], may_begin: MayBegin) -> Iterator[tuple[str, ActionOutcome]]:
        """Cordon several nodes, each named once, and yield each node's outcome as soon as it is known.

        The answers are those of `Scheduler.cordon`. Right before nodes are read and changed, `may_begin` selects those
        that are still to be cordoned, and may wait; it is called from several threads. Nodes that it leaves out are not
        changed and have no outcome.
        """


@runtime_checkable
class ReportsLocations(Protocol):
    """A scheduler that also knows node locations, from its own topology or from labels."""

    def places(self) -> dict[str, NodeLocation] | None:
        """Return every known node with its location, in one call; None: it cannot be queried now."""


@runtime_checkable
class TracksLostDrains(Protocol):
    """A scheduler that may lose a drain of ours, and can distinguish that from an operator's lift."""

    def remember(self, held: Mapping[str, float]) -> None:
        """Record earlier holds: node → when our drain was last confirmed, UTC s."""


def cordon_each(
    cordon: Callable[[str, str], ActionOutcome], cordons: Sequence[NodeCordon], may_begin: MayBegin, at_once: int
) -> Iterator[tuple[str, ActionOutcome]]:
    """Cordon nodes one by one, `at_once` side by side; otherwise as `CordonsTogether.cordon_many`."""

    def begin(each: NodeCordon) -> ActionOutcome | None:
        return cordon(each.node, each.reason) if may_begin((each.node,)) else None

    if not cordons:
        return
    with ThreadPoolExecutor(min(at_once, len(cordons)), thread_name_prefix="cordon") as pool:
        begun = {pool.submit(begin, each): each.node for each in cordons}
        for done in as_completed(begun):
            if (outcome := done.result()) is not None:
                yield begun[done], outcome


def check_cordon(hold: SchedulerNodeState) -> ActionOutcome | None:
    """Return the answer to a cordon that must not be carried out; None: continue."""
    if hold.schedulable is None:
        return ActionOutcome(ActionResult.FAILED if hold.known else ActionResult.UNKNOWN, hold.reason)
    if hold.owner is HoldOwner.US:
        return ActionOutcome(ActionResult.ALREADY, f"{hold.node} is already held by the controller: {hold.reason}")
    if hold.owner is HoldOwner.OPERATOR:
        return ActionOutcome(ActionResult.REFUSED, f"an operator holds {hold.node}: {hold.reason or 'no reason given'}")
    return None


def check_resume(hold: SchedulerNodeState) -> ActionOutcome | None:
    """Return the answer to a resume that must not be carried out; None: continue."""
    if hold.schedulable is None:
        return ActionOutcome(ActionResult.FAILED if hold.known else ActionResult.UNKNOWN, hold.reason)
    if hold.owner is HoldOwner.NOBODY:
        return ActionOutcome(ActionResult.ALREADY, f"{hold.node} is not held")
    if hold.owner is not HoldOwner.US:
        return ActionOutcome(
            ActionResult.REFUSED, f"not lifted: {hold.node} is held by {hold.owner.value}: {hold.reason}"
        )
    return None


def check_operator_cordon(hold: SchedulerNodeState) -> ActionOutcome | None:
    """Return the answer to an operator's cordon that must not be carried out; None: continue.

    A hold of ours becomes theirs.
    """
    if hold.schedulable is None:
        return ActionOutcome(ActionResult.FAILED if hold.known else ActionResult.UNKNOWN, hold.reason)
    if hold.owner is HoldOwner.OPERATOR:
        return ActionOutcome(
            ActionResult.ALREADY, f"an operator already holds {hold.node}: {hold.reason or 'no reason given'}"
        )
    return None


def check_operator_uncordon(hold: SchedulerNodeState, seen: str) -> ActionOutcome | None:
    """Return the answer to an operator's uncordon that must not be carried out; None: continue."""
    if hold.schedulable is None:
        return ActionOutcome(ActionResult.FAILED if hold.known else ActionResult.UNKNOWN, hold.reason)
    if hold.schedulable:
        return ActionOutcome(ActionResult.ALREADY, f"{hold.node} is in service")
    if hold.owner is HoldOwner.SCHEDULER:
        return ActionOutcome(ActionResult.REFUSED, f"the scheduler itself keeps {hold.node} out: {hold.reason}")
    if hold.reason != seen:
        return ActionOutcome(
            ActionResult.REFUSED, f"{hold.node} is now held for another reason: {hold.reason or 'none given'}"
        )
    return None


def format_operator_reason(text: str) -> str:
    """Return one line of bounded length that no scheduler takes for our reason.

    Raises:
        ValueError: it begins with our prefix.
    """
    line = " ".join(text.split())
    if line.startswith(REASON_PREFIX):
        raise ValueError(f"an operator's reason must not begin with {REASON_PREFIX!r}")
    return line[:REASON_LENGTH_MAX]


def format_own_reason(text: str) -> str:
    """Return one line of bounded length that every scheduler keeps unchanged.

    Raises:
        ValueError: it does not begin with our prefix, so we would not recognise it.
    """
    line = " ".join(text.split())
    if not line.startswith(REASON_PREFIX):
        raise ValueError(f"the controller's reason must begin with {REASON_PREFIX!r}, not {line[:40]!r}")
    return line[:REASON_LENGTH_MAX]
