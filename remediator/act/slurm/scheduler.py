"""A Slurm cluster as a scheduler: drain with our reason, see whose a drain is, lift only ours.

Slurm keeps one reason per node and changes it for whoever asks last: it cannot be told "only if it is still as I saw it". So a
node is looked at right before a change and again right after it; what another did in between is left alone and told.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from msgspec.structs import replace

from remediator.act.scheduler import (
    before_cordon,
    before_cordon_for,
    before_resume,
    before_uncordon_for,
    our_reason,
    their_reason,
)
from remediator.act.slurm.commands import Commands
from remediator.act.slurm.controller import Controller, Due, SlurmError
from remediator.act.slurm.forgotten import Drains
from remediator.act.slurm.leaving import requeue_from
from remediator.act.slurm.options import SlurmOptions
from remediator.act.slurm.pause import Pause
from remediator.act.slurm.restd import Restd
from remediator.act.slurm.setting_aside import give_back, set_aside
from remediator.act.slurm.states import hold_of, is_set_aside, jobs_by_node
from remediator.model.hold import NodeHold, Outcome, Owner, Result
from remediator.model.places import Places, merged
from vocabulary.clock import Clock, SystemClock


class SlurmScheduler:
    """A Slurm cluster, as an operator of it (root, SlurmUser, or an account with operator rights)."""

    def __init__(
        self, options: SlurmOptions | None = None, clock: Clock | None = None, controller: Controller | None = None
    ) -> None:
        self._options = options or SlurmOptions()
        self._clock = clock or SystemClock()
        self._slurm = controller or _way(self._options)
        self._pause = Pause()
        self._drains = Drains()
        self._observing = threading.Lock()

    def remember(self, held: Mapping[str, float]) -> None:
        """Take these for drains of ours that were seen, each at its time (UTC s)."""
        with self._observing:
            self._drains.remember(held)

    def observe(self, nodes: Collection[str]) -> dict[str, NodeHold]:
        """Every one of `nodes` as Slurm sees it now: two questions, whatever their number.

        One that did not answer is left alone for a while, longer each time; what is asked for a change is not held back.
        """
        with self._observing:
            if self._pause.left(self._clock.monotonic()):  # word for word what was said: nothing new has been seen
                return _cannot_say(nodes, self._pause.because)
            due = Due(self._options.deadline_s)
            try:
                holds = self._observed(nodes, due)
            except SlurmError as error:
                self._pause.failed(str(error), self._clock.monotonic())
                return _cannot_say(nodes, str(error))
            self._pause.answered()
            return self._without_forgotten(holds, due)

    def _observed(self, nodes: Collection[str], due: Due) -> dict[str, NodeHold]:
        known = {node.name: node for node in self._slurm.nodes(due)}
        running = jobs_by_node(self._slurm.jobs(due))
        found = {}
        for name in nodes:
            node = known.get(name)
            if node is None:
                found[name] = _unknown(name)
            else:
                hold = hold_of(node, running.get(name, ()))
                aside = bool(hold.schedulable and not hold.jobs and is_set_aside(node))
                late = self._had_its_time(hold, node.reason_at)
                found[name] = replace(hold, evictable=late, set_aside=aside)
        return found

    def _without_forgotten(self, holds: dict[str, NodeHold], due: Due) -> dict[str, NodeHold]:
        """Where Slurm forgot our drain, it is as if it had never known the node: the engine asks for its hold again.

        While it does not say whether it began anew, a drain that is gone is neither lifted nor forgotten.
        """
        gone = self._drains.gone(holds)
        try:
            asked = gone or self._drains.began is None
            forgotten = self._drains.forgotten(gone, self._slurm.began(due)) if asked else ()
        except SlurmError as error:
            holds |= _cannot_say(gone, f"our drain is gone, lifted or forgotten: when did slurmctld begin? {error}")
        else:
            for name in forgotten:
                reason = f"slurmctld began anew and has forgotten our drain of {name}"
                holds[name] = NodeHold(name, None, reason=reason, known=False)
        self._drains.seen(holds, self._clock.wall())
        return holds

    def _had_its_time(self, hold: NodeHold, since: float | None) -> bool:
        wait = self._options.requeue_after_s
        if not wait or hold.owner is not Owner.US or not hold.jobs or since is None:
            return False
        return self._clock.wall() - since >= wait

    def cordon(self, node: str, reason: str) -> Outcome:
        """Drain `node` with our reason; where Slurm itself had taken it out, its reason is kept behind ours."""
        ours = our_reason(reason)
        due = Due(self._options.deadline_s)
        try:
            hold = self._look(node, due)
            if (answer := before_cordon(hold)) is not None:
                return answer
            if hold.owner is Owner.SCHEDULER and hold.reason:
                ours = our_reason(f"{ours} (Slurm: {hold.reason})")
            self._slurm.drain(node, ours, due)
        except SlurmError as error:
            return Outcome(Result.FAILED, str(error))
        return self._taken_over(node, due) or Outcome(Result.DONE, f"Slurm drains {node}: {ours}")

    def resume(self, node: str) -> Outcome:
        """Lift our drain."""
        due = Due(self._options.deadline_s)
        try:
            if (answer := before_resume(self._look(node, due))) is not None:
                return answer
            self._slurm.resume(node, due)
        except SlurmError as error:
            return Outcome(Result.FAILED, str(error))
        return self._taken_over(node, due) or Outcome(Result.DONE, f"Slurm may use {node} again")

    def cordon_for(self, node: str, reason: str) -> Outcome:
        """Drain `node` with their reason, also where it was ours before."""
        theirs, due = their_reason(reason), Due(self._options.deadline_s)
        try:
            if (answer := before_cordon_for(self._look(node, due))) is not None:
                return answer
            self._slurm.drain(node, theirs, due)
        except SlurmError as error:
            return Outcome(Result.FAILED, str(error))
        return Outcome(Result.DONE, f"Slurm drains {node}: {theirs}")

    def uncordon_for(self, node: str, seen: str) -> Outcome:
        """Lift whatever drain stands there."""
        due = Due(self._options.deadline_s)
        try:
            if (answer := before_uncordon_for(self._look(node, due), seen)) is not None:
                return answer
            self._slurm.resume(node, due)
        except SlurmError as error:
            return Outcome(Result.FAILED, str(error))
        return self._taken_over(node, due) or Outcome(Result.DONE, f"Slurm may use {node} again")

    def evict(self, node: str) -> Outcome:
        """Requeue the batch jobs on a node that we hold, and keep each of them from starting on it again."""
        if not self._options.requeue_after_s:
            return Outcome(Result.ALREADY, f"Slurm waits until the work on {node} ends")
        due = Due(self._options.deadline_s)
        try:
            hold = self._look(node, due)
            if hold.schedulable is None:
                return Outcome(Result.FAILED if hold.known else Result.UNKNOWN, hold.reason)
            if hold.owner is not Owner.US:
                return Outcome(Result.REFUSED, f"nothing is requeued from {node}, which we do not hold: {hold.reason}")
            return requeue_from(self._slurm, node, due)
        except SlurmError as error:
            return Outcome(Result.FAILED, str(error))

    def places(self) -> dict[str, Places] | None:
        """Where Slurm says that its nodes stand: leaf switch or block, and partitions. None: it could not be asked."""
        due = Due(self._options.deadline_s)
        try:
            standing = self._slurm.topology(due)
            nodes = self._slurm.nodes(due)
        except SlurmError:
            return None
        return {
            node.name: merged(standing.get(node.name, Places()), Places(partitions=node.partitions)) for node in nodes
        }

    def set_aside(self, purpose: str, nodes: tuple[str, ...], minutes: int, user: str = "root") -> Outcome:
        """Reserve `nodes` from now on for what `user` runs there, a test over several nodes. Repeating it changes nothing.

        Raises:
            ValueError: no purpose that can stand in a name, no node, or no time.
        """
        try:
            return set_aside(self._slurm, purpose, nodes, minutes, user, Due(self._options.deadline_s))
        except SlurmError as error:
            return Outcome(Result.FAILED, str(error))

    def give_back(self, purpose: str) -> Outcome:
        """End what `set_aside` began; there is no way to end anybody else's reservation.

        Raises:
            ValueError: no purpose that can stand in a name.
        """
        try:
            return give_back(self._slurm, purpose, Due(self._options.deadline_s))
        except SlurmError as error:
            return Outcome(Result.FAILED, str(error))

    def _look(self, node: str, due: Due) -> NodeHold:
        """The node now, without its jobs. Raises SlurmError where Slurm cannot be asked."""
        found = self._slurm.node(node, due)
        return hold_of(found, ()) if found is not None else _unknown(node)

    def _taken_over(self, node: str, due: Due) -> Outcome | None:
        """Whether an operator came between our look and our change. None if not, or where it cannot be told any more."""
        try:
            after = self._look(node, due)
        except SlurmError:
            return None
        if after.owner is not Owner.OPERATOR:
            return None
        return Outcome(Result.REFUSED, f"an operator took {node} over in the same moment: {after.reason}")


def _way(options: SlurmOptions) -> Controller:
    commands = Commands(options)
    return Restd(options.rest, commands) if options.ask == "rest" else commands


def _cannot_say(nodes: Collection[str], why: str) -> dict[str, NodeHold]:
    return {node: NodeHold(node, None, reason=why) for node in nodes}


def _unknown(node: str) -> NodeHold:
    reason = f"Slurm knows no node {node}; healthd's 'node' must be its name in slurm.conf (NodeName)"
    return NodeHold(node, None, reason=reason, known=False)
