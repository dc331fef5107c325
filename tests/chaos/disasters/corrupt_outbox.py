"""A page of a node's own database is overwritten while its daemon is down. It must go on, and forget no line of the log."""

from __future__ import annotations

import random

from tests.chaos.disasters.contract import Disaster, always, nothing, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster

PAGE = 4096


def _draw(dice: random.Random, world: World) -> Strike:
    detail = {"page": float(dice.randrange(0, 8)), "seed": float(dice.randrange(1000))}
    return strike(dice, "corrupt_outbox", f"healthd-{dice.choice(world.nodes)}", 0.5, detail)


def _apply(cluster: Cluster, strike: Strike) -> None:
    daemon = cluster.daemons[strike.target]
    daemon.kill_and_keep_down()
    daemon.wait_until_gone()
    file = cluster.here.state(strike.target) / "healthd.db"
    pages = max(1, file.stat().st_size // PAGE)
    noise = random.Random(strike.detail["seed"]).randbytes(PAGE)  # noqa: S311 - the same noise every time
    with file.open("r+b") as database:
        database.seek(int(float(strike.detail["page"])) % pages * PAGE)
        database.write(noise)
    daemon.let_up()


DISASTER = Disaster("corrupt_outbox", always, _draw, _apply, nothing, weight=0.7)
