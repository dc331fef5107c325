"""A node's cable is pulled, and put back."""

from __future__ import annotations

import random

from tests.chaos.disasters.contract import Disaster, always, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster


def _draw(dice: random.Random, world: World) -> Strike:
    return strike(dice, "partition", dice.choice(world.nodes), 6.0)


def _apply(cluster: Cluster, strike: Strike) -> None:
    cluster.network.cable(strike.target, plugged=False)


def _undo(cluster: Cluster, strike: Strike) -> None:
    cluster.network.cable(strike.target, plugged=True)


DISASTER = Disaster("partition", always, _draw, _apply, _undo, weight=2.0)
