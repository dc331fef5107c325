"""kill -9 of a daemon; what looks after it starts it again some time later."""

from __future__ import annotations

import random

from tests.chaos.disasters.contract import Disaster, always, daemons, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster


def _draw(dice: random.Random, world: World) -> Strike:
    return strike(dice, "kill", dice.choice(daemons(world)), 4.0)


def _apply(cluster: Cluster, strike: Strike) -> None:
    cluster.daemons[strike.target].kill_and_keep_down()


def _undo(cluster: Cluster, strike: Strike) -> None:
    cluster.daemons[strike.target].let_up()


DISASTER = Disaster("kill", always, _draw, _apply, _undo, weight=3.0)
