"""kill -9 of all processes that the job has on a node, at once: its ranks, and those that wait for one."""

from __future__ import annotations

import random
import signal

from tests.chaos.disasters.contract import Disaster, always, nothing, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster


def _draw(dice: random.Random, world: World) -> Strike:
    return strike(dice, "trainer_node", dice.choice(world.nodes), 0.1)


def _apply(cluster: Cluster, strike: Strike) -> None:
    cluster.job.signal_node(strike.target, signal.SIGKILL)


DISASTER = Disaster("trainer_node", always, _draw, _apply, nothing)
