"""A rank is killed, and while it is being replaced another one is: one that lives, or the newcomer as it joins."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from typing import Any

from tests.chaos.disasters.contract import Disaster, nothing, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster

WHOM = ("survivor", "newcomer")
AWAIT_S = 5.0  # a job that is not running loses no rank
LOOK_S = 0.02


def _fits(world: World) -> bool:
    return world.swap


def _draw(dice: random.Random, world: World) -> Strike:
    detail = {"whom": dice.choice(WHOM), "other": float(dice.randrange(world.ranks)), "after_s": dice.random() * 0.3}
    return strike(dice, "swap_failure", f"rank-{dice.randrange(world.ranks)}", AWAIT_S, detail)


def _apply(cluster: Cluster, strike: Strike) -> None:
    threading.Thread(target=_fail_twice, args=(cluster, strike), daemon=True).start()


def _fail_twice(cluster: Cluster, strike: Strike) -> None:
    seen = len(_launcher(cluster))
    cluster.job.signal_rank(int(strike.target.partition("-")[2]), signal.SIGKILL)
    newcomer = strike.detail["whom"] == "newcomer"
    kind, ends = "rank_replaced" if newcomer else "rank_lost", time.monotonic() + AWAIT_S
    while time.monotonic() < ends:
        found = [line for line in _launcher(cluster)[seen:] if line["event"] == kind]
        if found:
            time.sleep(float(strike.detail["after_s"]))
            if newcomer:
                cluster.job.signal_node(found[0]["after"], signal.SIGKILL)
            else:
                cluster.job.signal_rank(int(float(strike.detail["other"])), signal.SIGKILL)
            return
        time.sleep(LOOK_S)


def _launcher(cluster: Cluster) -> list[dict[str, Any]]:
    with contextlib.suppress(ValueError):  # its newest line may be half written
        return cluster.journal.read("launcher")
    return []


DISASTER = Disaster("swap_failure", _fits, _draw, _apply, nothing, weight=3.0)
