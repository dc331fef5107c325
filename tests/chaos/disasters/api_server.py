"""Kubernetes' API server answers 429, hangs up, or accepts and says nothing."""

from __future__ import annotations

import random

from tests.chaos.disasters.contract import Disaster, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster

MANY = 10_000


def _fits(world: World) -> bool:
    return world.scheduler == "kubernetes"


def _draw(dice: random.Random, _: World) -> Strike:
    return strike(dice, "api_server", "api-server", 5.0, {"mood": dice.choice(("busy", "dark", "silent"))})


def _apply(cluster: Cluster, strike: Strike) -> None:
    server = cluster.kubernetes.server
    if strike.detail["mood"] == "busy":
        server.busy = server.busy_watches = MANY
    elif strike.detail["mood"] == "dark":
        server.dark.set()
    else:
        server.silent.set()


def _undo(cluster: Cluster, _: Strike) -> None:
    server = cluster.kubernetes.server
    server.busy = server.busy_watches = 0
    server.dark.clear()
    server.silent.clear()


DISASTER = Disaster("api_server", _fits, _draw, _apply, _undo, weight=3.0)
