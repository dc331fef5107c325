"""kill -9 of a child of healthd: the one that asks the driver, or the one that reads the machine's sources."""

from __future__ import annotations

import random

from tests.chaos.disasters.contract import Disaster, always, nothing, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster


def _draw(dice: random.Random, world: World) -> Strike:
    return strike(dice, "kill_child", f"healthd-{dice.choice(world.nodes)}", 0.1, {"which": dice.choice((0.0, 1.0))})


def _apply(cluster: Cluster, strike: Strike) -> None:
    cluster.daemons[strike.target].kill_child(int(float(strike.detail["which"])))


DISASTER = Disaster("kill_child", always, _draw, _apply, nothing)
