"""Nodes and jobs as they truly are, which no policy but the oracle may look at, and the account of what was won and lost."""

from __future__ import annotations

import dataclasses

from remediator.simulation.failure_causes import FailureCause
from remediator.simulation.job_progress import JobProgress


@dataclasses.dataclass
class SimulatedNode:
    """One node's truth. `fault` is what is wrong now; `again` counts promises of a repetition, the last one holds."""

    index: int
    lemon: bool = False
    slow: bool = False
    fault: FailureCause | None = None
    lasting: bool = False
    latent: bool = False  # will fail again soon, whatever it shows
    in_service: bool = True
    reserved: bool = False  # kept for somebody else: works for no job, and is no spare
    by_people: bool = False  # they took it out or look after it
    job: SimulatedJob | None = None
    again: int = 0
    since_s: float = 0.0  # of the state that the account has not seen yet

    @property
    def name(self) -> str:
        """As the pipeline knows it."""
        return f"n{self.index:05d}"

    @property
    def sound(self) -> bool:
        """Nothing is wrong with it, hidden or not."""
        return self.fault is None and not (self.lemon or self.slow or self.latent)

    @property
    def broken(self) -> bool:
        """No work gets done on it until it is repaired."""
        return self.fault is not None and self.lasting


@dataclasses.dataclass
class SimulatedJob:
    """A place for one job after the other, of a fixed number of nodes.

    Attributes:
        phase: idle, running, restarting or waiting (for nodes).
        turn: changes with every start and stop, so that what was planned for an earlier one is known as stale.
    """

    number: int
    size: int
    progress: JobProgress
    nodes: list[SimulatedNode] = dataclasses.field(default_factory=list)
    phase: str = "idle"
    turn: int = 0
    runs: int = 0
    work_s: float = 0.0
    ends_by_user: bool = False
    since_s: float = 0.0  # of this phase

    @property
    def name(self) -> str:
        """As the pipeline knows it; each run is a job of its own."""
        return f"job{self.number}-{self.runs}"

    @property
    def speed(self) -> float:
        """Of its slowest node; the fleet's parameter is applied by whoever asks."""
        return 0.0 if any(node.slow for node in self.nodes) else 1.0


@dataclasses.dataclass
class FleetAccount:
    """Sums over the fleet; node-seconds, or numbers of things."""

    wanted: float = 0.0  # between the begin and the end of jobs
    useful: float = 0.0
    lost: float = 0.0
    waited: float = 0.0
    healthy_out: float = 0.0
    out: float = 0.0
    faults: int = 0
    job_failures: int = 0
    restarts: int = 0
    isolations: int = 0
    wrong: int = 0
    by_people: int = 0
