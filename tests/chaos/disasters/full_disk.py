"""A daemon's disk is full: not one byte more can be written, until somebody makes room."""

from __future__ import annotations

import contextlib
import errno
import random

from tests.chaos.disasters.contract import Disaster, always, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster

PIECE = 1 << 16


def _draw(dice: random.Random, world: World) -> Strike:
    targets = [f"healthd-{node}" for node in world.nodes]
    return strike(
        dice, "full_disk", dice.choice([*targets, "centre-0"] if world.database == "sqlite" else targets), 5.0
    )


def _apply(cluster: Cluster, strike: Strike) -> None:
    filler = cluster.here.state(strike.target) / "filler"
    for piece in (PIECE, 1):
        with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
            while True:
                file.write(b"x" * piece)
    assert filler.exists(), errno.ENOSPC


def _undo(cluster: Cluster, strike: Strike) -> None:
    (cluster.here.state(strike.target) / "filler").unlink(missing_ok=True)


DISASTER = Disaster("full_disk", always, _draw, _apply, _undo)
