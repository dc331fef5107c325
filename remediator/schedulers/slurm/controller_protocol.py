"""What slurmctld can be asked and told, whichever way; each call ends within the time it is given, or raises."""

from __future__ import annotations

import time
from typing import Protocol

from remediator.model.node_location import NodeLocation
from remediator.schedulers.slurm.slurm_records import Reservation, SlurmJob, SlurmNode


class SlurmError(Exception):
    """Slurm could not be asked, or would not do it; the text says what was tried and what to do."""


class NotInstalledError(SlurmError):
    """A program of Slurm's is not there."""


class CommandDeadline:
    """When a piece of work must be over: several commands share one deadline."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left; 0 when there are none."""
        return max(0.0, self._at - time.monotonic())


class SlurmController(Protocol):
    """A way to slurmctld. Every method raises SlurmError."""

    def nodes(self, due: CommandDeadline) -> list[SlurmNode]:
        """All nodes."""
        ...

    def node(self, name: str, due: CommandDeadline) -> SlurmNode | None:
        """One node as it is right now; None: Slurm answers that it knows no such node."""
        ...

    def jobs(self, due: CommandDeadline) -> list[SlurmJob]:
        """All jobs that may be on a node; perhaps others, too."""
        ...

    def began(self, due: CommandDeadline) -> float | None:
        """When the slurmctld of now began, UTC s; None where it does not say."""
        ...

    def drain(self, node: str, reason: str, due: CommandDeadline) -> None:
        """Take a node out of service, under this reason; one that it has is lost."""
        ...

    def resume(self, node: str, due: CommandDeadline) -> None:
        """Lift whatever drain is on a node."""
        ...

    def job(self, name: str, due: CommandDeadline) -> SlurmJob | None:
        """One job, with the nodes that it excludes; None: Slurm has forgotten it."""
        ...

    def requeue(self, job: str, due: CommandDeadline) -> None:
        """End a batch job and queue it again."""
        ...

    def exclude(self, job: str, nodes: tuple[str, ...], due: CommandDeadline) -> None:
        """Set the whole list of nodes on which a job that is queued must not start."""
        ...

    def reservations(self, due: CommandDeadline) -> list[Reservation]:
        """All reservations."""
        ...

    def reserve(self, name: str, nodes: tuple[str, ...], minutes: int, user: str, due: CommandDeadline) -> None:
        """Set nodes aside from now on for maintenance by `user`, also where jobs still run."""
        ...

    def release(self, name: str, due: CommandDeadline) -> None:
        """Delete a reservation."""
        ...

    def topology(self, due: CommandDeadline) -> dict[str, NodeLocation]:
        """Where nodes stand; empty where Slurm was not told."""
        ...
