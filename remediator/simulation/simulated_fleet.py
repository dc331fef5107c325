"""The true state of nodes and jobs, visible only to the oracle, and the account of won and lost time."""

from __future__ import annotations

import dataclasses

from remediator.simulation.failure_causes import FailureCause
from remediator.simulation.job_progress import JobProgress


@dataclasses.dataclass
class SimulatedNode:
    """One node's true state.

    `fault` is its current one; `again` counts planned repetitions, of which the last one holds.
    """

    index: int
    lemon: bool = False
    slow: bool = False
    fault: FailureCause | None = None
    lasting: bool = False
    latent: bool = False  # will fail again soon, whatever it shows
    in_service: bool = True
    reserved: bool = False  # reserved: gets no job and is no spare
    by_people: bool = False  # isolated or being repaired by operators
    job: SimulatedJob | None = None
    again: int = 0
    since_s: float = 0.0  # of the state that is not booked yet

    @property
    def name(self) -> str:
        """Its name in the pipeline."""
        return f"n{self.index:05d}"

    @property
    def sound(self) -> bool:
        """Whether it has no fault, hidden or not."""
        return self.fault is None and not (self.lemon or self.slow or self.latent)

    @property
    def broken(self) -> bool:
        """Whether no work gets done on it until it is repaired."""
        return self.fault is not None and self.lasting


@dataclasses.dataclass
class SimulatedJob:
    """A slot for consecutive jobs of a fixed number of nodes.

    Attributes:
        phase: idle, running, restarting or waiting (for nodes).
        turn: changes with every start and stop, so that events planned for an earlier one are recognised as stale.
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
        """Its name in the pipeline; each run is a job of its own."""
        return f"job{self.number}-{self.runs}"

    @property
    def speed(self) -> float:
        """The speed of its slowest node; the caller applies the fleet's parameter."""
        return 0.0 if any(node.slow for node in self.nodes) else 1.0


@dataclasses.dataclass
class FleetAccount:
    """Sums over the fleet: node-seconds, or counts."""

    wanted: float = 0.0  # between start and end of jobs
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
