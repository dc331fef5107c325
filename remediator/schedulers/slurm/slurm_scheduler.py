"""A Slurm cluster as a scheduler: drain with our reason, find the owner of a drain, lift only ours.

Slurm keeps one reason per node and the last writer wins: there is no conditional update. So a node is read right before
and right after a change; what another did in between is left alone and reported.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from remediator.model.node_location import NodeLocation, merge_locations
from remediator.model.scheduler_hold import ActionOutcome, ActionResult, HoldOwner, SchedulerNodeState
from remediator.schedulers.scheduler_protocol import (
    MayBegin,
    NodeCordon,
    check_cordon,
    check_operator_cordon,
    check_operator_uncordon,
    check_resume,
    cordon_each,
    format_operator_reason,
    format_own_reason,
)
from remediator.schedulers.slurm.controller_protocol import CommandDeadline, SlurmController, SlurmError
from remediator.schedulers.slurm.cordon_batch import CordonBatch, refuse_taken_over
from remediator.schedulers.slurm.drain_ownership import describe_slurm_hold, is_partly_reserved, jobs_by_node
from remediator.schedulers.slurm.job_requeue import requeue_node_jobs
from remediator.schedulers.slurm.lost_drains import DrainMemory
from remediator.schedulers.slurm.reservations import create_reservation, delete_reservation
from remediator.schedulers.slurm.slurm_commands import SlurmCommands
from remediator.schedulers.slurm.slurm_options import SlurmOptions
from remediator.schedulers.slurm.slurmrestd import Slurmrestd
from vocabulary.clock import Clock, SystemClock

BACKOFF_FIRST_S = 0.5
BACKOFF_LONGEST_S = 15.0
COMMANDS_AT_ONCE = 4


class SlurmScheduler:
    """A Slurm cluster, with operator rights (root, SlurmUser, or an operator account)."""

    def __init__(
        self, options: SlurmOptions | None = None, clock: Clock | None = None, controller: SlurmController | None = None
    ) -> None:
        self._options = options or SlurmOptions()
        self._clock = clock or SystemClock()
        self._slurm = controller or _connect_controller(self._options)
        self._pause = RetryBackoff()
        self._drains = DrainMemory()
        self._observing = threading.Lock()

    def remember(self, held: Mapping[str, float]) -> None:
        """Record these as observed drains of ours, each at its time (UTC s)."""
        with self._observing:
            self._drains.remember(held)

    def observe(self, nodes: Collection[str]) -> dict[str, SchedulerNodeState]:
        """Return every one of `nodes` as Slurm sees it now, in two queries, whatever their number.

        After a failure there is a growing pause; queries for a change are not delayed.
        """
        with self._observing:
            if self._pause.left(self._clock.monotonic()):  # repeated unchanged: nothing new has been seen
                return _unavailable_holds(nodes, self._pause.because)
            due = CommandDeadline(self._options.deadline_s)
            try:
                holds = self._observed(nodes, due)
            except SlurmError as error:
                self._pause.failed(str(error), self._clock.monotonic())
                return _unavailable_holds(nodes, str(error))
            self._pause.answered()
            return self._without_forgotten(holds, due)

    def _observed(self, nodes: Collection[str], due: CommandDeadline) -> dict[str, SchedulerNodeState]:
        known = {node.name: node for node in self._slurm.nodes(due)}
        running = jobs_by_node(self._slurm.jobs(due))
        found = {}
        for name in nodes:
            node = known.get(name)
            if node is None:
                found[name] = _unknown_node_hold(name)
            else:
                hold = describe_slurm_hold(node, running.get(name, ()))
                aside = bool(hold.schedulable and not hold.jobs and is_partly_reserved(node))
                late = self._had_its_time(hold, node.reason_at)
                found[name] = replace(hold, evictable=late, set_aside=aside)
        return found

    def _without_forgotten(
        self, holds: dict[str, SchedulerNodeState], due: CommandDeadline
    ) -> dict[str, SchedulerNodeState]:
        """Report nodes whose drain Slurm forgot as unknown, so that the engine requests its hold again.

        While it is unknown whether slurmctld restarted, a missing drain counts neither as lifted nor as forgotten.
        """
        gone = self._drains.gone(holds)
        try:
            asked = gone or self._drains.began is None
            forgotten = self._drains.forgotten(gone, self._slurm.began(due)) if asked else ()
        except SlurmError as error:
            holds |= _unavailable_holds(
                gone,
                f"the drain is missing: lifted by an operator or lost by slurmctld, whose start time is unknown: {error}",
            )
        else:
            for name in forgotten:
                reason = f"slurmctld restarted and lost the drain of {name}"
                holds[name] = SchedulerNodeState(name, None, reason=reason, known=False)
        self._drains.seen(holds, self._clock.wall())
        return holds

    def _had_its_time(self, hold: SchedulerNodeState, since: float | None) -> bool:
        wait = self._options.requeue_after_s
        if not wait or hold.owner is not HoldOwner.US or not hold.jobs or since is None:
            return False
        return self._clock.wall() - since >= wait

    def cordon(self, node: str, reason: str) -> ActionOutcome:
        """Drain `node` with our reason; where Slurm itself had taken it out, its reason is kept behind ours."""
        ours = format_own_reason(reason)
        due = CommandDeadline(self._options.deadline_s)
        try:
            hold = self._look(node, due)
            if (answer := check_cordon(hold)) is not None:
                return answer
            if hold.owner is HoldOwner.SCHEDULER and hold.reason:
                ours = format_own_reason(f"{ours} (Slurm: {hold.reason})")
            self._slurm.drain(node, ours, due)
        except SlurmError as error:
            return ActionOutcome(ActionResult.FAILED, str(error))
        return self._taken_over(node, due) or ActionOutcome(ActionResult.DONE, f"Slurm drains {node}: {ours}")

    def cordon_many(self, cordons: Sequence[NodeCordon], may_begin: MayBegin) -> Iterator[tuple[str, ActionOutcome]]:
        """Drain nodes of the same cause with one update, and with a shared reason; others one by one."""
        try:
            together = self._slurm.takes_lists(CommandDeadline(self._options.deadline_s))
        except SlurmError:  # it is down: each cordon says so
            together = False
        by_cause: dict[str, list[NodeCordon]] = {}
        for each in cordons:
            by_cause.setdefault(each.cause if together else "", []).append(each)
        alone = by_cause.pop("", [])
        for cause, group in by_cause.items():
            batch = CordonBatch(self._slurm, self._look_at, self._options.deadline_s)
            yield from batch.cordon(cause, group, may_begin)
            alone += batch.one_by_one
        yield from cordon_each(self.cordon, alone, may_begin, COMMANDS_AT_ONCE)

    def resume(self, node: str) -> ActionOutcome:
        """Lift our drain."""
        due = CommandDeadline(self._options.deadline_s)
        try:
            if (answer := check_resume(self._look(node, due))) is not None:
                return answer
            self._slurm.resume(node, due)
        except SlurmError as error:
            return ActionOutcome(ActionResult.FAILED, str(error))
        return self._taken_over(node, due) or ActionOutcome(ActionResult.DONE, f"Slurm may use {node} again")

    def cordon_for(self, node: str, reason: str) -> ActionOutcome:
        """Drain `node` with the operator's reason, also where the drain was ours."""
        theirs, due = format_operator_reason(reason), CommandDeadline(self._options.deadline_s)
        try:
            if (answer := check_operator_cordon(self._look(node, due))) is not None:
                return answer
            self._slurm.drain(node, theirs, due)
        except SlurmError as error:
            return ActionOutcome(ActionResult.FAILED, str(error))
        return ActionOutcome(ActionResult.DONE, f"Slurm drains {node}: {theirs}")

    def uncordon_for(self, node: str, seen: str) -> ActionOutcome:
        """Lift any drain."""
        due = CommandDeadline(self._options.deadline_s)
        try:
            if (answer := check_operator_uncordon(self._look(node, due), seen)) is not None:
                return answer
            self._slurm.resume(node, due)
        except SlurmError as error:
            return ActionOutcome(ActionResult.FAILED, str(error))
        return self._taken_over(node, due) or ActionOutcome(ActionResult.DONE, f"Slurm may use {node} again")

    def evict(self, node: str) -> ActionOutcome:
        """Requeue the batch jobs on a node that we hold, and exclude the node for each of them."""
        if not self._options.requeue_after_s:
            return ActionOutcome(ActionResult.ALREADY, f"Slurm waits until the work on {node} ends")
        due = CommandDeadline(self._options.deadline_s)
        try:
            hold = self._look(node, due)
            if hold.schedulable is None:
                return ActionOutcome(ActionResult.FAILED if hold.known else ActionResult.UNKNOWN, hold.reason)
            if hold.owner is not HoldOwner.US:
                return ActionOutcome(
                    ActionResult.REFUSED,
                    f"nothing is requeued from {node}, because the controller does not hold it: {hold.reason}",
                )
            return requeue_node_jobs(self._slurm, node, due)
        except SlurmError as error:
            return ActionOutcome(ActionResult.FAILED, str(error))

    def places(self) -> dict[str, NodeLocation] | None:
        """Return Slurm's node locations: leaf switch or block, and partitions. None: it could not be queried."""
        due = CommandDeadline(self._options.deadline_s)
        try:
            locations = self._slurm.topology(due)
            nodes = self._slurm.nodes(due)
        except SlurmError:
            return None
        return {
            node.name: merge_locations(
                locations.get(node.name, NodeLocation()), NodeLocation(partitions=node.partitions)
            )
            for node in nodes
        }

    def set_aside(self, purpose: str, nodes: tuple[str, ...], minutes: int, user: str = "root") -> ActionOutcome:
        """Reserve `nodes` from now on for a multi-node test of `user`. Repeating it changes nothing.

        Raises:
            ValueError: the purpose is no valid name part, or there is no node or no time.
        """
        try:
            return create_reservation(
                self._slurm, purpose, nodes, minutes, user, CommandDeadline(self._options.deadline_s)
            )
        except SlurmError as error:
            return ActionOutcome(ActionResult.FAILED, str(error))

    def give_back(self, purpose: str) -> ActionOutcome:
        """End a reservation of `set_aside`; it cannot end anybody else's.

        Raises:
            ValueError: the purpose is no valid name part.
        """
        try:
            return delete_reservation(self._slurm, purpose, CommandDeadline(self._options.deadline_s))
        except SlurmError as error:
            return ActionOutcome(ActionResult.FAILED, str(error))

    def _look(self, node: str, due: CommandDeadline) -> SchedulerNodeState:
        """Return the node now, without its jobs. Raises SlurmError if Slurm cannot be queried."""
        found = self._slurm.node(node, due)
        return describe_slurm_hold(found, ()) if found is not None else _unknown_node_hold(node)

    def _look_at(self, nodes: Collection[str], due: CommandDeadline) -> dict[str, SchedulerNodeState]:
        """Return these nodes now as in `_look`, with one query of all nodes."""
        known = {node.name: node for node in self._slurm.nodes(due)}
        return {
            name: describe_slurm_hold(known[name], ()) if name in known else _unknown_node_hold(name) for name in nodes
        }

    def _taken_over(self, node: str, due: CommandDeadline) -> ActionOutcome | None:
        """Return whether an operator came between our read and our change. None if not, or if that is unknown."""
        try:
            after = self._look(node, due)
        except SlurmError:
            return None
        if after.owner is not HoldOwner.OPERATOR:
            return None
        return refuse_taken_over(after)


def _connect_controller(options: SlurmOptions) -> SlurmController:
    commands = SlurmCommands(options)
    return Slurmrestd(options.rest, commands) if options.ask == "rest" else commands


def _unavailable_holds(nodes: Collection[str], why: str) -> dict[str, SchedulerNodeState]:
    return {node: SchedulerNodeState(node, None, reason=why) for node in nodes}


def _unknown_node_hold(node: str) -> SchedulerNodeState:
    reason = f"Slurm has no node {node}; healthd's 'node' must be its name in slurm.conf (NodeName)"
    return SchedulerNodeState(node, None, reason=reason, known=False)


class RetryBackoff:
    """Back-off after a slurmctld failure. Doubles with every failure in a row. Times are of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self.because = ""
        self._length = 0.0
        self._until = 0.0

    def left(self, now: float) -> float:
        """Return the seconds without queries; 0: query now."""
        return max(0.0, self._until - now)

    def failed(self, because: str, now: float) -> None:
        """Record a failure."""
        self.because = because
        self._length = min(BACKOFF_LONGEST_S, self._length * 2 or BACKOFF_FIRST_S)
        self._until = now + self._length

    def answered(self) -> None:
        """Record an answer."""
        self.because, self._length, self._until = "", 0.0, 0.0
