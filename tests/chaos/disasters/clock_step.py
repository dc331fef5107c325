"""A daemon's wall clock is suddenly seconds or an hour off, and later right again; the monotonic one goes on."""

from __future__ import annotations

import random

from tests.chaos.disasters.contract import Disaster, always, daemons, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster

STEPS_S = (-3600.0, -30.0, -3.0, 3.0, 30.0, 3600.0)


def _draw(dice: random.Random, world: World) -> Strike:
    return strike(dice, "clock_step", dice.choice(daemons(world)), 5.0, {"by_s": dice.choice(STEPS_S)})


def _apply(cluster: Cluster, strike: Strike) -> None:
    cluster.here.set_clock(strike.target, float(strike.detail["by_s"]))


def _undo(cluster: Cluster, strike: Strike) -> None:
    cluster.here.set_clock(strike.target, 0.0)


DISASTER = Disaster("clock_step", always, _draw, _apply, _undo)
