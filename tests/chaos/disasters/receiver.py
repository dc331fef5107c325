"""Whoever is to be told of incidents hangs up, or answers 500."""

from __future__ import annotations

import random

from tests.chaos.disasters.contract import Disaster, always, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster


def _draw(dice: random.Random, _: World) -> Strike:
    return strike(dice, "receiver", "receiver", 6.0, {"mood": dice.choice(("down", "failing"))})


def _apply(cluster: Cluster, strike: Strike) -> None:
    cluster.receiver.mood = str(strike.detail["mood"])


def _undo(cluster: Cluster, _: Strike) -> None:
    cluster.receiver.mood = "well"


DISASTER = Disaster("receiver", always, _draw, _apply, _undo)
