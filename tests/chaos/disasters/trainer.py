"""A rank is killed, stands still, dies in the middle of a checkpoint, or somebody writes garbage where its beacon is."""

from __future__ import annotations

import random
import signal

from tests.chaos.disasters.contract import Disaster, always, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster
from tests.chaos.world.environment import BEACONS

HOW = ("kill", "stop", "die_in_save", "garbage")


def _draw(dice: random.Random, world: World) -> Strike:
    detail = {"how": dice.choice(HOW), "seed": float(dice.randrange(1000))}
    return strike(dice, "trainer", f"rank-{dice.randrange(world.ranks)}", 4.0, detail)


def _apply(cluster: Cluster, strike: Strike) -> None:
    rank = int(strike.target.partition("-")[2])
    how = strike.detail["how"]
    if how == "kill":
        cluster.job.signal_rank(rank, signal.SIGKILL)
    elif how == "stop":
        cluster.job.signal_rank(rank, signal.SIGSTOP)
    elif how == "die_in_save":
        cluster.job.die_in_next_save(rank)
    else:
        _spoil(float(strike.detail["seed"]))


def _undo(cluster: Cluster, strike: Strike) -> None:
    if strike.detail["how"] == "stop":
        cluster.job.go_on(int(strike.target.partition("-")[2]))


def _spoil(seed: float) -> None:
    """Noise into every page of one node's folder, and a file of noise beside them."""
    dice = random.Random(seed)  # noqa: S311 - the same noise every time
    folder = dice.choice(sorted(BEACONS.iterdir()))
    for page in sorted(path for path in folder.iterdir() if path.is_file()):
        with page.open("r+b") as file:
            file.seek(dice.randrange(max(1, page.stat().st_size)))
            file.write(dice.randbytes(64))
    (folder / "noise").write_bytes(dice.randbytes(5000))


DISASTER = Disaster("trainer", always, _draw, _apply, _undo, weight=2.0)
