"""What a disaster is: when it fits, how it is drawn, how it is done and undone. One file each, one line in the registry."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tests.chaos.plan import PORTION_S, QUIET_S, Strike, World

if TYPE_CHECKING:
    from tests.chaos.world.cluster import Cluster

Detail = dict[str, float | str]


class Disaster(NamedTuple):
    """One kind. `apply` and `undo` return at once, or within a second; they may be called for several targets at a time."""

    name: str
    fits: Callable[[World], bool]
    draw: Callable[[random.Random, World], Strike]
    apply: Callable[[Cluster, Strike], None]
    undo: Callable[[Cluster, Strike], None]
    weight: float = 1.0
    once: bool = False  # it cannot be done a second time in a run


def always(_: World) -> bool:
    """It fits every world."""
    return True


def nothing(_: Cluster, __: Strike) -> None:
    """It undoes itself."""


def strike(dice: random.Random, name: str, target: str, longest_s: float, detail: Detail | None = None) -> Strike:
    """One at a time of the dice's choice, of up to `longest_s`."""
    at_s = round(QUIET_S + dice.random() * (PORTION_S - QUIET_S), 3)
    until_s = round(at_s + 0.2 + dice.random() * longest_s, 3)
    return Strike(disaster=name, at_s=at_s, until_s=until_s, target=target, detail=detail or {})


def daemons(world: World) -> list[str]:
    """The processes of ours, by the names they have in a run."""
    return [*(f"healthd-{node}" for node in world.nodes), *(f"centre-{number}" for number in range(world.centres))]
