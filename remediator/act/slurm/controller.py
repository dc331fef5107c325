"""What slurmctld can be asked and told, whichever way; each call ends within the time it is given, or raises."""

from __future__ import annotations

import time
from typing import Protocol

from remediator.act.slurm.records import Reservation, SlurmJob, SlurmNode
from remediator.model.places import Places


class SlurmError(Exception):
    """Slurm could not be asked, or would not do it; the text says what was tried and what to do."""


class NotInstalledError(SlurmError):
    """A program of Slurm's is not there."""


class Due:
    """When a piece of work must be over: several commands share one deadline."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left; 0 when there are none."""
        return max(0.0, self._at - time.monotonic())


class Controller(Protocol):
    """A way to slurmctld. Every method raises SlurmError."""

    def nodes(self, due: Due) -> list[SlurmNode]:
        """All nodes."""
        ...

    def node(self, name: str, due: Due) -> SlurmNode | None:
        """One node as it is right now; None: Slurm answers that it knows no such node."""
        ...

    def jobs(self, due: Due) -> list[SlurmJob]:
        """All jobs that may be on a node; perhaps others, too."""
        ...

    def began(self, due: Due) -> float | None:
        """When the slurmctld of now began, UTC s; None where it does not say."""
        ...

    def drain(self, node: str, reason: str, due: Due) -> None:
        """Take a node out of service, under this reason; one that it has is lost."""
        ...

    def resume(self, node: str, due: Due) -> None:
        """Lift whatever drain is on a node."""
        ...

    def job(self, name: str, due: Due) -> SlurmJob | None:
        """One job, with the nodes that it excludes; None: Slurm has forgotten it."""
        ...

    def requeue(self, job: str, due: Due) -> None:
        """End a batch job and queue it again."""
        ...

    def exclude(self, job: str, nodes: tuple[str, ...], due: Due) -> None:
        """Set the whole list of nodes on which a job that is queued must not start."""
        ...

    def reservations(self, due: Due) -> list[Reservation]:
        """All reservations."""
        ...

    def reserve(self, name: str, nodes: tuple[str, ...], minutes: int, user: str, due: Due) -> None:
        """Set nodes aside from now on for maintenance by `user`, also where jobs still run."""
        ...

    def release(self, name: str, due: Due) -> None:
        """Delete a reservation."""
        ...

    def topology(self, due: Due) -> dict[str, Places]:
        """Where nodes stand; empty where Slurm was not told."""
        ...
