"""The interface between the launcher and a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from healthd.launcher.decisions.relaunch_policy import RankEnd
from healthd.launcher.decisions.requeue_policy import RequeueDecision
from healthd.launcher.rank import PER_NODE_VARIABLE


class BackendError(Exception):
    """The scheduler cannot do what is needed; says what and what to do."""


class Attempt(NamedTuple):
    """One start of the job: a process per rank, or, `per_node`, one per node that starts `ranks_per_node` ranks itself.

    `patience_seconds` after the first process has ended, the backend may end the others; 0: never.
    """

    number: int
    job: str
    nodes: tuple[str, ...]
    ranks_per_node: int
    command: tuple[str, ...]
    per_node: bool = False
    patience_seconds: float = 0.0
    swap: bool = False  # whether lost ranks are replaced while the others go on
    spares: tuple[str, ...] = ()  # nodes on which as many processes wait, to take the ranks of a node that is lost
    elastic: tuple[int, int] | None = None  # between which numbers of nodes it continues in place; None: with these
    frozen_seconds: float = 0.0  # of silence and standstill until a frozen rank is replaced; 0: never

    @property
    def tasks_per_node(self) -> int:
        """Return how many processes to start on a node."""
        return 1 if self.per_node else self.ranks_per_node

    @property
    def world(self) -> int:
        """Return how many processes hold a rank."""
        return len(self.nodes) * self.tasks_per_node

    @property
    def tasks(self) -> int:
        """Return how many processes to start: those with a rank first, then the spares."""
        return self.world + len(self.spares) * self.tasks_per_node

    def node_of(self, task: int) -> str:
        """Return the node of a process."""
        return (*self.nodes, *self.spares)[task // self.tasks_per_node]

    @property
    def rank_nodes(self) -> tuple[str, ...]:
        """The node of each rank."""
        return tuple(self.node_of(rank) for rank in range(self.world))

    def shared_environment(self, address: str, port: int) -> dict[str, str]:
        """Return the environment of all processes: their group, and the rendezvous address.

        torchrun takes its options from variables that begin with PET_.
        """
        environ = {
            "HEALTHD_JOB": self.job,
            "HEALTHD_ATTEMPT": str(self.number),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
        }
        if not self.per_node:
            return environ | {"WORLD_SIZE": str(self.world), "LOCAL_WORLD_SIZE": str(self.ranks_per_node)}
        nodes = {"NNODES": str(len(self.nodes)), PER_NODE_VARIABLE: "1", "PET_NPROC_PER_NODE": str(self.ranks_per_node)}
        return (
            environ | nodes | {"PET_NNODES": nodes["NNODES"], "PET_MASTER_ADDR": address, "PET_MASTER_PORT": str(port)}
        )


class NodeQuestion(NamedTuple):
    """A query of nodes: a module of this package that answers on each of them, its arguments, and the timeout."""

    topic: str
    arguments: tuple[str, ...]
    seconds: float


Answers = Mapping[str, Mapping[str, Any]]  # by node; a node without a timely answer is missing
Announce = Callable[[RequeueDecision], None]  # records how a job is about to come back


class Event(NamedTuple):
    """An event for the journal: `text` for people, `facts` for programs."""

    kind: str
    text: str
    facts: Mapping[str, object]


class AttemptRun(Protocol):
    """The ranks of an attempt, while they run and after."""

    @property
    def condemned(self) -> Collection[str]:
        """Nodes lost for good whose ranks were replaced, besides those that the ranks' ends show."""

    @property
    def rank_nodes(self) -> Sequence[str]:
        """The node of each rank; of a run whose ranks may move or become fewer, as it is now."""

    def ended(self) -> Sequence[RankEnd]:
        """Return the ranks known to have ended. Does not wait."""

    def over(self) -> bool:
        """Return whether everything has ended; `ended` then lists every rank."""

    def terminate(self) -> None:
        """Request every rank to save and leave (SIGTERM)."""

    def kill(self) -> None:
        """Kill every rank now; those that still ran count as killed."""

    def take_events(self) -> Sequence[Event]:
        """Return the run's own events since the last call, such as a replaced rank."""

    def clear(self) -> None:
        """End leftovers of ended ranks: workers that hold GPU memory, ports, pipes."""


class Backend(Protocol):
    """A scheduler, or none."""

    name: str
    attempts_before: int  # made by others for this job
    requeues_before: int  # how often this job was requeued, where anything counts that
    resizable: bool  # whether nodes can be given back and added while the job runs

    def job(self) -> str:
        """The name under which the ranks publish their pages; the same after a requeue."""

    def nodes(self) -> tuple[str, ...]:
        """The available nodes, in a stable order."""

    def ask(self, nodes: Sequence[str], question: NodeQuestion, stopped: Callable[[], bool]) -> Answers:
        """Query all nodes at once; return early when `stopped`."""

    def start(self, attempt: Attempt) -> AttemptRun:
        """Start the ranks.

        Raises:
            BackendError: they cannot be started.
        """

    def guard_host(self, events: Path | None) -> AbstractContextManager[None]:
        """Have the job queued again if the launcher's own node is lost. `events`: where that is recorded."""

    def release(self, node: str) -> None:
        """Give a node back to the scheduler while the job goes on.

        Raises:
            BackendError: the node stays.
        """

    def request_node(self, stopped: Callable[[], bool]) -> str | None:
        """Wait for one more node; None once `stopped`.

        Raises:
            BackendError: there will be none.
        """

    def requeue(self, refused: Collection[str], in_vain: int, announce: Announce) -> RequeueDecision | None:
        """Return the allocation and queue the job again; None if that is not possible.

        Args:
            refused: nodes that the job should avoid.
            in_vain: consecutive requeues without an attempt; each one lengthens the wait.
            announce: called with the decision just before the scheduler is called, as it may end this process at
            once.
        """
