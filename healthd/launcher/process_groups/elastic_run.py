"""A run whose lost ranks are replaced while the others go on: the launcher sees ranks, whichever process holds them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from healthd.launcher.decisions.relaunch_policy import RankEnd
from healthd.launcher.process_groups.elastic_membership import SizeLimits
from healthd.launcher.process_groups.group_membership import Member
from healthd.launcher.process_groups.rendezvous_server import LOOPBACK, RendezvousServer
from healthd.launcher.scheduler_backend import Attempt, Event
from healthd.trainer.exit_codes import ExitCode

LEAVE_SECONDS = 5.0  # for a rank on a condemned node to leave by itself; a frozen one never does


class RunProcesses(Protocol):
    """The processes of a run, by the number of their start. `ended` tells of each, spares too."""

    def ended(self) -> Sequence[RankEnd]:
        """Those that have ended."""

    def over(self) -> bool:
        """Whether all have."""

    def terminate(self) -> None:
        """SIGTERM to all."""

    def kill(self) -> None:
        """SIGKILL to all."""

    def kill_one(self, task: int) -> None:
        """SIGKILL to one, and to all that came from it."""

    def start_more(self, node: str, first: int, local_ranks: Sequence[int]) -> None:
        """Start one process for each of these places on a node; their numbers go on from `first`. Raises OSError."""

    def clear(self) -> None:
        """End what they left behind."""


class ElasticRun:
    """A `Run` over processes and their rendezvous."""

    def __init__(
        self, attempt: Attempt, start: Callable[[RendezvousServer], RunProcesses], host: str = LOOPBACK
    ) -> None:
        """Raises OSError.

        Args:
            attempt: what to run.
            start: starts its processes, with `Rendezvous.environ` in their environment.
            host: at which address they reach this machine.
        """
        self._attempt = attempt
        members = [Member(task, attempt.node_of(task)) for task in range(attempt.tasks)]
        self._places = {task: (attempt.node_of(task), task % attempt.tasks_per_node) for task in range(attempt.tasks)}
        sizes = attempt.elastic and SizeLimits(*attempt.elastic, attempt.tasks_per_node)
        self._rendezvous = RendezvousServer(members, attempt.world, host, sizes, attempt.frozen_seconds)
        self._kill_at: dict[int, float] = {}
        try:
            self._processes = start(self._rendezvous)
        except OSError:
            self._rendezvous.close()
            raise

    def ended(self) -> Sequence[RankEnd]:
        """The ranks that have ended. While a lost one can be replaced, only those that are done.

        Also after all were done: what the program does then may fail.
        """
        over = self._processes.over()  # first: then all of them are among the ends
        ends = self._processes.ended()
        self._end_condemned({end.rank for end in ends})
        found = []
        for end in ends:
            if end.code != ExitCode.DONE:
                self._rendezvous.note_end(end.rank)
            rank = self._rendezvous.rank_of(end.rank)
            if rank is not None and (end.code == ExitCode.DONE or over or self._rendezvous.stopped):
                found.append(RankEnd(rank, end.node, end.code, end.killed))
        return found

    @property
    def rank_nodes(self) -> Sequence[str]:
        """The node of each rank."""
        return self._rendezvous.rank_nodes

    @property
    def stopped(self) -> bool:
        """Whether there will be no further generation."""
        return self._rendezvous.stopped

    def vacant(self) -> dict[str, list[int]]:
        """Places by node in which a process has ended, and no other was started; none on condemned nodes."""
        ended = {end.rank for end in self._processes.ended()}
        taken = {place for task, place in self._places.items() if task not in ended}
        found: dict[str, list[int]] = {}
        for node, local_rank in sorted(set(self._places.values()) - taken):
            if node not in self.condemned:
                found.setdefault(node, []).append(local_rank)
        return found

    def living_nodes(self) -> frozenset[str]:
        """Nodes on which a process lives."""
        ended = {end.rank for end in self._processes.ended()}
        return frozenset(node for task, (node, _) in self._places.items() if task not in ended)

    def start_on(self, node: str, local_ranks: Sequence[int]) -> None:
        """Start processes in these places of a node; they wait for a rank as spares.

        Raises:
            OSError: they cannot be started.
        """
        first = max(self._places) + 1
        added = {first + at: (node, local_rank) for at, local_rank in enumerate(local_ranks)}
        self._rendezvous.admit([Member(task, node) for task in added])
        self._places |= added
        self._processes.start_more(node, first, local_ranks)

    @property
    def condemned(self) -> Collection[str]:
        """Nodes that an order condemned; their ranks went to spares."""
        return self._rendezvous.condemned_nodes

    def over(self) -> bool:
        """Whether every process has ended."""
        return self._processes.over()

    def terminate(self) -> None:
        """SIGTERM to all; from here on no rank is replaced."""
        self._rendezvous.stop("the job received a stop request")
        self._processes.terminate()

    def kill(self) -> None:
        """SIGKILL to all."""
        self._rendezvous.stop("the ranks are killed")
        self._processes.kill()

    def take_events(self) -> Sequence[Event]:
        """Which ranks were lost and replaced."""
        return self._rendezvous.take_events()

    def clear(self) -> None:
        """End what the processes left behind, and the rendezvous."""
        self._processes.clear()
        self._rendezvous.close()

    def _end_condemned(self, ended: set[int]) -> None:
        now = time.monotonic()
        self._kill_at |= dict.fromkeys(self._rendezvous.take_condemned(), now + LEAVE_SECONDS)
        for member, kill_at in list(self._kill_at.items()):
            if member in ended or now >= kill_at:
                del self._kill_at[member]
                if member not in ended:
                    self._processes.kill_one(member)
