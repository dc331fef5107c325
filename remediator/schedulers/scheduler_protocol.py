"""What every scheduler must be able to do for us: a state to *hold*, asked for again and again until it holds.

Ownership is the rule that matters: an operator's own drain wins, and only what we placed is lifted by us, unless a person
says so by name. The functions below are that rule; every backend asks them about the node as it is *now*, right before it acts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, runtime_checkable

from remediator.model.node_location import NodeLocation
from remediator.model.scheduler_hold import REASON_PREFIX, ActionOutcome, ActionResult, HoldOwner, NodeHold

REASON_LENGTH_MAX = 250


class Scheduler(Protocol):
    """A scheduler. No call raises for what the world does, and each ends within the backend's own deadline."""

    def observe(self, nodes: Collection[str]) -> dict[str, NodeHold]:
        """Every one of `nodes` as the scheduler sees it now, in one call.

        A node whose state could not be learnt (scheduler down, name unknown) has `schedulable` None and says why;
        where the scheduler answered that it has no such node, `known` is False.
        """
        ...

    def cordon(self, node: str, reason: str) -> ActionOutcome:
        """Take `node` out of service: running work may end, no new work starts. `reason` begins with our prefix."""
        ...

    def resume(self, node: str) -> ActionOutcome:
        """Lift the hold that we placed on `node`."""
        ...

    def cordon_for(self, node: str, reason: str) -> ActionOutcome:
        """Take `node` out of service in a person's name, for their `reason`: from then on the hold is an operator's."""
        ...

    def uncordon_for(self, node: str, seen: str) -> ActionOutcome:
        """Put `node` back into service as a person's own deed, whoever holds it, if the reason is still the one they saw."""
        ...

    def evict(self, node: str) -> ActionOutcome:
        """Ask what still runs on a node that we hold to leave; asked for only where `NodeHold.evictable` says so."""
        ...


@runtime_checkable
class ReportsLocations(Protocol):
    """A scheduler that can also say where its nodes stand: by its own topology, or by labels."""

    def places(self) -> dict[str, NodeLocation] | None:
        """Every node it knows, and where it stands by its word, in one call; None: it cannot be asked now."""
        ...


@runtime_checkable
class TracksLostDrains(Protocol):
    """A scheduler that may lose a drain of ours, and tells that from an operator's lift by what it saw itself."""

    def remember(self, held: Mapping[str, float]) -> None:
        """What was held before it was first asked: node → when our drain was last confirmed, UTC s."""
        ...


def check_cordon(hold: NodeHold) -> ActionOutcome | None:
    """The answer to a drain that must not be carried out, or None: go on."""
    if hold.schedulable is None:
        return ActionOutcome(ActionResult.FAILED if hold.known else ActionResult.UNKNOWN, hold.reason)
    if hold.owner is HoldOwner.US:
        return ActionOutcome(ActionResult.ALREADY, f"{hold.node} is already held by us: {hold.reason}")
    if hold.owner is HoldOwner.OPERATOR:
        return ActionOutcome(ActionResult.REFUSED, f"an operator holds {hold.node}: {hold.reason or 'no reason given'}")
    return None


def check_resume(hold: NodeHold) -> ActionOutcome | None:
    """The answer to a resume that must not be carried out, or None: go on."""
    if hold.schedulable is None:
        return ActionOutcome(ActionResult.FAILED if hold.known else ActionResult.UNKNOWN, hold.reason)
    if hold.owner is HoldOwner.NOBODY:
        return ActionOutcome(ActionResult.ALREADY, f"nobody holds {hold.node}")
    if hold.owner is not HoldOwner.US:
        return ActionOutcome(
            ActionResult.REFUSED, f"not ours to lift: {hold.owner.value} holds {hold.node}: {hold.reason}"
        )
    return None


def check_operator_cordon(hold: NodeHold) -> ActionOutcome | None:
    """The answer to a person's cordon that must not be carried out, or None: go on. What we hold becomes theirs."""
    if hold.schedulable is None:
        return ActionOutcome(ActionResult.FAILED if hold.known else ActionResult.UNKNOWN, hold.reason)
    if hold.owner is HoldOwner.OPERATOR:
        return ActionOutcome(
            ActionResult.ALREADY, f"an operator holds {hold.node} already: {hold.reason or 'no reason given'}"
        )
    return None


def check_operator_uncordon(hold: NodeHold, seen: str) -> ActionOutcome | None:
    """The answer to a person's uncordon that must not be carried out, or None: go on."""
    if hold.schedulable is None:
        return ActionOutcome(ActionResult.FAILED if hold.known else ActionResult.UNKNOWN, hold.reason)
    if hold.schedulable:
        return ActionOutcome(ActionResult.ALREADY, f"{hold.node} is in service")
    if hold.owner is HoldOwner.SCHEDULER:
        return ActionOutcome(ActionResult.REFUSED, f"the scheduler itself keeps {hold.node} out: {hold.reason}")
    if hold.reason != seen:
        return ActionOutcome(
            ActionResult.REFUSED, f"{hold.node} is held for another reason by now: {hold.reason or 'none given'}"
        )
    return None


def format_operator_reason(text: str) -> str:
    """One line of bounded length that no scheduler takes for ours.

    Raises:
        ValueError: it begins with our prefix.
    """
    line = " ".join(text.split())
    if line.startswith(REASON_PREFIX):
        raise ValueError(f"a person's reason does not begin with {REASON_PREFIX!r}")
    return line[:REASON_LENGTH_MAX]


def format_own_reason(text: str) -> str:
    """One line of bounded length that every scheduler keeps unchanged.

    Raises:
        ValueError: it does not begin with our prefix, so we would not know it again.
    """
    line = " ".join(text.split())
    if not line.startswith(REASON_PREFIX):
        raise ValueError(f"a reason of ours begins with {REASON_PREFIX!r}, not {line[:40]!r}")
    return line[:REASON_LENGTH_MAX]
