"""SIGSTOP of a daemon, and SIGCONT: the process is there, holds its locks and connections, and does nothing."""

from __future__ import annotations

import random
import signal

from tests.chaos.disasters.contract import Disaster, always, daemons, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster


def _draw(dice: random.Random, world: World) -> Strike:
    return strike(dice, "suspend", dice.choice(daemons(world)), 5.0)


def _apply(cluster: Cluster, strike: Strike) -> None:
    cluster.daemons[strike.target].signal(signal.SIGSTOP)


def _undo(cluster: Cluster, strike: Strike) -> None:
    cluster.daemons[strike.target].signal(signal.SIGCONT)


DISASTER = Disaster("suspend", always, _draw, _apply, _undo, weight=2.0)
