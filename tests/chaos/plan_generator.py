"""A plan from a seed."""

from __future__ import annotations

import random

from tests.chaos.commands import draw_commands
from tests.chaos.disasters.registry import DISASTERS
from tests.chaos.faults import draw_lines
from tests.chaos.plan import Plan, Strike, World, draw_world


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    dice = random.Random(seed)  # noqa: S311 - the same plan every time
    world = draw_world(dice)
    lines = draw_lines(dice, world)
    return Plan(
        seed=seed,
        world=world,
        lines=lines,
        strikes=draw_strikes(dice, world),
        commands=draw_commands(dice, world),
    )


def draw_strikes(dice: random.Random, world: World) -> tuple[Strike, ...]:
    """One to four; of each kind and target no two at one time."""
    fitting = [disaster for disaster in DISASTERS if disaster.fits(world)]
    weights = [disaster.weight for disaster in fitting]
    strikes: list[Strike] = []
    for disaster in dice.choices(fitting, weights, k=dice.choices((1, 2, 3, 4), (2, 4, 3, 1))[0]):
        strike = disaster.draw(dice, world)
        again = disaster.once and any(other.disaster == disaster.name for other in strikes)
        if not again and not any(_meet(strike, other) for other in strikes):
            strikes.append(strike)
    return tuple(sorted(strikes, key=lambda strike: (strike.at_s, strike.disaster)))


def _meet(one: Strike, other: Strike) -> bool:
    same = one.disaster == other.disaster or one.target == other.target
    return same and one.at_s <= other.until_s + 1 and other.at_s <= one.until_s + 1
