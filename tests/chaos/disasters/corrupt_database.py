"""Many pages of the centre's SQLite are overwritten while it is down. It must not begin; an operator puts a copy in place.

The copy is of the moment before, so nothing may be missing afterwards: docs/how-to/damaged-database.md.
"""

from __future__ import annotations

import random
from pathlib import Path

from tests.chaos.disasters.contract import Disaster, strike
from tests.chaos.plan import Strike, World
from tests.chaos.world.cluster import Cluster
from tests.chaos.world.database import Sqlite

PAGE = 4096
TARGET = "centre-0"


def _fits(world: World) -> bool:
    return world.database == "sqlite"


def _draw(dice: random.Random, _: World) -> Strike:
    return strike(dice, "corrupt_database", TARGET, 4.0, {"seed": float(dice.randrange(1000))})


def _apply(cluster: Cluster, strike: Strike) -> None:
    assert isinstance(cluster.database, Sqlite)
    centre = cluster.daemons[TARGET]
    centre.kill_and_keep_down()
    centre.wait_until_gone()
    cluster.database.copy()
    spoil(cluster.database.file, float(strike.detail["seed"]))
    centre.let_up()


def _undo(cluster: Cluster, _: Strike) -> None:
    assert isinstance(cluster.database, Sqlite)
    centre = cluster.daemons[TARGET]
    centre.kill_and_keep_down()
    centre.wait_until_gone()
    cluster.database.put_copy_in_place()
    centre.let_up()


def spoil(file: Path, seed: float) -> None:
    """Noise over a third of its pages, sometimes the first one, too."""
    dice = random.Random(seed)  # noqa: S311 - the same noise every time
    pages = file.stat().st_size // PAGE
    with file.open("r+b") as database:
        for page in dice.sample(range(pages), max(1, pages // 3)):
            database.seek(page * PAGE)
            database.write(dice.randbytes(PAGE))


DISASTER = Disaster("corrupt_database", _fits, _draw, _apply, _undo, weight=0.7)
