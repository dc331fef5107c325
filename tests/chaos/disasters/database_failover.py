"""PostgreSQL is gone and stays away; a while later its synchronous standby is promoted, and serves in its place."""

from __future__ import annotations

import random

from tests.chaos.disasters.contract import Disaster, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster
from tests.chaos.world.database import Postgresql


def _fits(world: World) -> bool:
    return world.database == "postgresql"


def _draw(dice: random.Random, _: World) -> Strike:
    return strike(dice, "database_failover", "database", 4.0)


def _apply(cluster: Cluster, _: Strike) -> None:
    assert isinstance(cluster.database, Postgresql)
    cluster.database.crash()


def _undo(cluster: Cluster, _: Strike) -> None:
    assert isinstance(cluster.database, Postgresql)
    cluster.database.promote_standby()


DISASTER = Disaster("database_failover", _fits, _draw, _apply, _undo, weight=2.0, once=True)
