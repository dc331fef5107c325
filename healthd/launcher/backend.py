"""What the launcher needs of a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from healthd.launcher.plan import RankEnd


class BackendError(Exception):
    """The scheduler does not do what is needed; says what and what to do."""


class Attempt(NamedTuple):
    """One start of the job."""

    number: int
    job: str
    nodes: tuple[str, ...]
    ranks_per_node: int
    command: tuple[str, ...]

    @property
    def world(self) -> int:
        """How many ranks."""
        return len(self.nodes) * self.ranks_per_node


class Question(NamedTuple):
    """What to ask of nodes: a module of this package that answers on each of them, its arguments, and how long to wait."""

    topic: str
    arguments: tuple[str, ...]
    seconds: float


Answers = Mapping[str, Mapping[str, Any]]  # by node; who did not answer in time is missing


class Run(Protocol):
    """The ranks of an attempt, while they run and after."""

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


class Backend(Protocol):
    """A scheduler, or none."""

    name: str

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

    def requeue(self) -> bool:
        """Give the allocation back and queue the job again; False where that is not possible."""
        ...
