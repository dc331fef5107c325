"""A node's line loses every third packet and carries little, so that what is sent queues up."""

from __future__ import annotations

import random

from tests.chaos.disasters.contract import Disaster, always, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster


def _draw(dice: random.Random, world: World) -> Strike:
    detail = {"loss": dice.choice((0.1, 0.3)), "kbit": dice.choice((32.0, 256.0))}
    return strike(dice, "bad_line", dice.choice(world.nodes), 6.0, detail)


def _apply(cluster: Cluster, strike: Strike) -> None:
    cluster.network.spoil(strike.target, float(strike.detail["loss"]), float(strike.detail["kbit"]))


def _undo(cluster: Cluster, strike: Strike) -> None:
    cluster.network.mend(strike.target)


DISASTER = Disaster("bad_line", always, _draw, _apply, _undo)
