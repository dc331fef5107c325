"""The two ends of the scale: nobody acts, and somebody who knows the truth."""

from __future__ import annotations

from remediator.simulation.failure_causes import FailureCause
from remediator.simulation.simulated_fleet import SimulatedNode
from remediator.simulation.simulated_world import SimulatedWorld


class PassiveActor:
    """Jobs are started again where they were; people find what stays broken."""

    def foresees(self, node: SimulatedNode, *, lasting: bool) -> bool:
        """Never."""
        del node, lasting
        return False

    def found(self, node: SimulatedNode, cause: FailureCause) -> None:
        """Nobody reads it."""

    def left(self, node: SimulatedNode) -> None:
        """Nothing follows."""

    def joined(self, node: SimulatedNode) -> None:
        """Nothing follows."""

    def held(self, node: SimulatedNode) -> None:
        """Nothing follows."""

    def given_back(self, node: SimulatedNode) -> None:
        """Nothing follows."""


class OracleActor(PassiveActor):
    """Knows each fault just before it comes: saves in time, takes out what needs a repair and nothing else."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    def foresees(self, node: SimulatedNode, *, lasting: bool) -> bool:
        """The job saves and starts anew; where only a repair helps, without the node."""
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
