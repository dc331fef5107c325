"""A node's disk is read-only after a new start, as a damaged file system is mounted; repaired, the daemon starts again."""

from __future__ import annotations

import random
import subprocess

from tests.chaos.disasters.contract import Disaster, always, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster


def _draw(dice: random.Random, world: World) -> Strike:
    return strike(dice, "read_only_disk", f"healthd-{dice.choice(world.nodes)}", 4.0)


def _apply(cluster: Cluster, strike: Strike) -> None:
    _restart_on(cluster, strike, "ro")


def _undo(cluster: Cluster, strike: Strike) -> None:
    _restart_on(cluster, strike, "rw")


def _restart_on(cluster: Cluster, strike: Strike, how: str) -> None:
    daemon = cluster.daemons[strike.target]
    daemon.kill_and_keep_down()
    daemon.wait_until_gone()
    subprocess.run(["mount", "-o", f"remount,{how}", str(cluster.here.state(strike.target))], check=True)
    daemon.let_up()


DISASTER = Disaster("read_only_disk", always, _draw, _apply, _undo, weight=0.7)
