"""The two extremes: no automation, and an oracle."""

from __future__ import annotations

from remediator.simulation.failure_causes import FailureCause
from remediator.simulation.simulated_fleet import SimulatedNode
from remediator.simulation.simulated_world import SimulatedWorld


class PassiveActor:
    """Jobs restart where they were; operators find what stays broken."""

    def foresees(self, node: SimulatedNode, *, lasting: bool) -> bool:
        """Never."""
        del node, lasting
        return False

    def found(self, node: SimulatedNode, cause: FailureCause) -> None:
        """Ignored."""

    def left(self, node: SimulatedNode) -> None:
        """Nothing follows."""

    def joined(self, node: SimulatedNode) -> None:
        """Nothing follows."""

    def held(self, node: SimulatedNode) -> None:
        """Nothing follows."""

    def given_back(self, node: SimulatedNode) -> None:
        """Nothing follows."""


class OracleActor(PassiveActor):
    """Knows each fault just before it comes: checkpoints in time, isolates nodes that need a repair and no others."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    def foresees(self, node: SimulatedNode, *, lasting: bool) -> bool:
        """Checkpoint and restart the job; without the node if only a repair helps."""
        world, job = self._world, node.job
        if node.slow and not world.jobs.free:
            return False
        goes = lasting or node.lemon
        if goes:
            world.take_out(node)
        if job is not None and job.phase != "idle":
            world.jobs.save_and_leave(job, lambda: None)
        if goes:
            world.repair(node, surely=True)
        return True
