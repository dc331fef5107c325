"""What the launcher needs of a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from healthd.launcher.coming_back import Return
from healthd.launcher.plan import RankEnd
from healthd.launcher.rank import PER_NODE_VARIABLE


class BackendError(Exception):
    """The scheduler does not do what is needed; says what and what to do."""


class Attempt(NamedTuple):
    """One start of the job: a process per rank, or, `per_node`, one per node that makes `ranks_per_node` ranks itself.

    `patience_seconds` after the first has ended, however, the backend may end the others; 0: never.
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
    elastic: tuple[int, int] | None = None  # between which numbers of nodes it goes on in place; None: with these

    @property
    def tasks_per_node(self) -> int:
        """How many processes to start on a node."""
        return 1 if self.per_node else self.ranks_per_node

    @property
    def world(self) -> int:
        """How many processes hold a rank."""
        return len(self.nodes) * self.tasks_per_node

    @property
    def tasks(self) -> int:
        """How many processes to start: those that hold a rank first, then the spares."""
        return self.world + len(self.spares) * self.tasks_per_node

    def node_of(self, task: int) -> str:
        """Where a process runs."""
        return (*self.nodes, *self.spares)[task // self.tasks_per_node]

    @property
    def rank_nodes(self) -> tuple[str, ...]:
        """The node of each rank."""
        return tuple(self.node_of(rank) for rank in range(self.world))

    def shared_environment(self, address: str, port: int) -> dict[str, str]:
        """What all processes are told: who they are together, and where to meet.

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


class Question(NamedTuple):
    """What to ask of nodes: a module of this package that answers on each of them, its arguments, and how long to wait."""

    topic: str
    arguments: tuple[str, ...]
    seconds: float


Answers = Mapping[str, Mapping[str, Any]]  # by node; who did not answer in time is missing
Announce = Callable[[Return], None]  # records how a job is about to come back


class Event(NamedTuple):
    """Something that the journal is to hold: `text` for people, `facts` for programs."""

    kind: str
    text: str
    facts: Mapping[str, object]


class Run(Protocol):
    """The ranks of an attempt, while they run and after."""

    @property
    def condemned(self) -> Collection[str]:
        """Nodes that it has lost for good, beside those that the ranks' ends tell of: their ranks were replaced."""
        ...

    @property
    def rank_nodes(self) -> Sequence[str]:
        """The node of each rank; of a run whose ranks may move or become fewer, as it is now."""
        ...

    def ended(self) -> Sequence[RankEnd]:
        """The ranks known to have ended, so far. Does not wait."""
        ...

    def over(self) -> bool:
        """Whether nothing runs any more; `ended` then lists every rank."""
        ...

    def terminate(self) -> None:
        """Ask every rank to save and leave (SIGTERM)."""
        ...

    def kill(self) -> None:
        """End every rank now; those that still ran count as killed."""
        ...

    def take_events(self) -> Sequence[Event]:
        """What the run itself did since the last call, such as replacing a rank."""
        ...

    def clear(self) -> None:
        """End what the ranks have left behind, once they have ended: workers that hold GPU memory, ports, pipes."""
        ...


class Backend(Protocol):
    """A scheduler, or none."""

    name: str
    attempts_before: int  # that somebody else has made for this job
    requeues_before: int  # how often this job was given back to its queue, where anybody counts

    def job(self) -> str:
        """The name under which the ranks publish their pages; the same after a requeue."""
        ...

    def nodes(self) -> tuple[str, ...]:
        """The nodes at hand, in a stable order."""
        ...

    def ask(self, nodes: Sequence[str], question: Question, stopped: Callable[[], bool]) -> Answers:
        """Ask all nodes at once; gives up early when `stopped`."""
        ...

    def start(self, attempt: Attempt) -> Run:
        """Start the ranks.

        Raises:
            BackendError: they cannot be started.
        """
        ...

    def requeue(self, refused: Collection[str], in_vain: int, announce: Announce) -> Return | None:
        """Give the allocation back and queue the job again; None where that is not possible.

        Args:
            refused: nodes onto which it had better not come back.
            in_vain: how often in a row it was queued again without an attempt; who comes back in vain waits.
            announce: called with the plan just before the scheduler is asked, as it may end this process at once.
        """
        ...
