"""Slurm's controller is stopped, or stands still: it takes connections and answers nobody."""

from __future__ import annotations

import random

from tests.chaos.disasters.contract import Disaster, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster


def _fits(world: World) -> bool:
    return world.scheduler == "slurm"


def _draw(dice: random.Random, _: World) -> Strike:
    return strike(dice, "slurm_controller", "slurmctld", 5.0, {"how": dice.choice(("stopped", "still"))})


def _apply(cluster: Cluster, strike: Strike) -> None:
    if strike.detail["how"] == "stopped":
        cluster.slurm.stop()
    else:
        cluster.slurm.stand_still(still=True)


def _undo(cluster: Cluster, strike: Strike) -> None:
    if strike.detail["how"] == "stopped":
        cluster.slurm.start()
    else:
        cluster.slurm.stand_still(still=False)


DISASTER = Disaster("slurm_controller", _fits, _draw, _apply, _undo, weight=3.0)
