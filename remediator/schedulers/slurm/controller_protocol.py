"""The interface to slurmctld, for commands and REST. Each call ends within its deadline or raises."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from remediator.model.node_location import NodeLocation
from remediator.schedulers.slurm.slurm_records import Reservation, SlurmJob, SlurmNode


class SlurmError(Exception):
    """Slurm cannot be queried, or refuses; the text says what was tried and what to do."""


class NotInstalledError(SlurmError):
    """A Slurm program is not installed."""


class CommandDeadline:
    """A deadline shared by several commands."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left; 0 when there are none."""
        return max(0.0, self._at - time.monotonic())


class SlurmController(Protocol):
    """Access to slurmctld. Every method raises SlurmError."""

    def nodes(self, due: CommandDeadline) -> list[SlurmNode]:
        """All nodes."""

    def node(self, name: str, due: CommandDeadline) -> SlurmNode | None:
        """One node right now; None: Slurm answers that it has no such node."""

    def jobs(self, due: CommandDeadline) -> list[SlurmJob]:
        """All jobs that may be on a node, perhaps others too."""

    def began(self, due: CommandDeadline) -> float | None:
        """Start of the current slurmctld, UTC s; None if unknown."""

    def drain(self, node: str, reason: str, due: CommandDeadline) -> None:
        """Drain a node with this reason; an earlier reason is lost."""

    def takes_lists(self, due: CommandDeadline) -> bool:
        """Whether one call can drain many nodes."""

    def drain_list(self, nodes: Sequence[str], reason: str, due: CommandDeadline) -> None:
        """Drain many known nodes with this reason. After an error, some of them may be drained."""

    def resume(self, node: str, due: CommandDeadline) -> None:
        """Lift any drain of a node."""

    def job(self, name: str, due: CommandDeadline) -> SlurmJob | None:
        """One job with its excluded nodes; None: Slurm has forgotten it."""

    def requeue(self, job: str, due: CommandDeadline) -> None:
        """End a batch job and queue it again."""

    def exclude(self, job: str, nodes: tuple[str, ...], due: CommandDeadline) -> None:
        """Set the list of nodes on which a queued job must not start."""

    def reservations(self, due: CommandDeadline) -> list[Reservation]:
        """All reservations."""

    def reserve(self, name: str, nodes: tuple[str, ...], minutes: int, user: str, due: CommandDeadline) -> None:
        """Reserve nodes from now on for maintenance by `user`, even where jobs still run."""

    def release(self, name: str, due: CommandDeadline) -> None:
        """Delete a reservation."""

    def topology(self, due: CommandDeadline) -> dict[str, NodeLocation]:
        """Node locations; empty if Slurm has none."""
