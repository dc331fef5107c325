"""Kubernetes' API server is too busy, fails, fails when the write is done, hangs up, or accepts and says nothing."""

from __future__ import annotations

import random

from tests.chaos.disasters.contract import Disaster, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster

MANY = 10_000
MOODS = ("busy", "dark", "silent", "failing", "failing_late", "unavailable")


def _fits(world: World) -> bool:
    return world.scheduler == "kubernetes"


def _draw(dice: random.Random, _: World) -> Strike:
    return strike(dice, "api_server", "api-server", 5.0, {"mood": dice.choice(MOODS)})


def _apply(cluster: Cluster, strike: Strike) -> None:
    server = cluster.kubernetes.server
    match strike.detail["mood"]:
        case "busy":
            server.busy = server.busy_watches = MANY
        case "dark":
            server.dark.set()
        case "silent":
            server.silent.set()
        case "failing":
            server.failing = 500
        case "unavailable":
            server.failing = 503
        case "failing_late":
            server.failing_late = True


def _undo(cluster: Cluster, _: Strike) -> None:
    server = cluster.kubernetes.server
    server.busy = server.busy_watches = server.failing = 0
    server.failing_late = False
    server.dark.clear()
    server.silent.clear()


DISASTER = Disaster("api_server", _fits, _draw, _apply, _undo, weight=3.0)
