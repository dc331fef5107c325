"""PostgreSQL is gone from one moment to the next, recovers from its log and serves again."""

from __future__ import annotations

import random

from tests.chaos.disasters.contract import Disaster, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster
from tests.chaos.world.database import Postgresql


def _fits(world: World) -> bool:
    return world.database == "postgresql"


def _draw(dice: random.Random, _: World) -> Strike:
    return strike(dice, "database_crash", "database", 4.0)


def _apply(cluster: Cluster, _: Strike) -> None:
    assert isinstance(cluster.database, Postgresql)
    cluster.database.crash()


def _undo(cluster: Cluster, _: Strike) -> None:
    assert isinstance(cluster.database, Postgresql)
    cluster.database.start_again()


DISASTER = Disaster("database_crash", _fits, _draw, _apply, _undo, weight=2.0)
