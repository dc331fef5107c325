"""kill -9 of two ranks at the same moment."""

from __future__ import annotations

import random
import signal

from tests.chaos.disasters.contract import Disaster, nothing, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster


def _fits(world: World) -> bool:
    return world.ranks > 1


def _draw(dice: random.Random, world: World) -> Strike:
    one, other = dice.sample(range(world.ranks), 2)
    return strike(dice, "trainer_pair", f"rank-{one}", 0.1, {"other": float(other)})


def _apply(cluster: Cluster, strike: Strike) -> None:
    for rank in (int(strike.target.partition("-")[2]), int(float(strike.detail["other"]))):
        cluster.job.signal_rank(rank, signal.SIGKILL)


DISASTER = Disaster("trainer_pair", _fits, _draw, _apply, nothing)
