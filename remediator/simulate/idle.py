"""The two ends of the scale: nobody acts, and somebody who knows the truth."""

from __future__ import annotations

from remediator.simulate.causes import Cause
from remediator.simulate.fleet import Node
from remediator.simulate.world import World


class Nobody:
    """Jobs are started again where they were; people find what stays broken."""

    def foresees(self, node: Node, *, lasting: bool) -> bool:
        """Never."""
        del node, lasting
        return False

    def found(self, node: Node, cause: Cause) -> None:
        """Nobody reads it."""

    def left(self, node: Node) -> None:
        """Nothing follows."""

    def joined(self, node: Node) -> None:
        """Nothing follows."""

    def held(self, node: Node) -> None:
        """Nothing follows."""

    def given_back(self, node: Node) -> None:
        """Nothing follows."""


class Oracle(Nobody):
    """Knows each fault just before it comes: saves in time, takes out what needs a repair and nothing else."""

    def __init__(self, world: World) -> None:
        self._world = world

    def foresees(self, node: Node, *, lasting: bool) -> bool:
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
