"""What two operators say meanwhile, each at a terminal of their own."""

from __future__ import annotations

import random

from tests.chaos.plan import PORTION_S, QUIET_S, Command, World

WHO = ("ann", "bob")
INCIDENT = "{incident}"  # the newest that is open by then


def draw_commands(dice: random.Random, world: World) -> tuple[Command, ...]:
    """None in most runs; else a few, of both, that may well contradict each other."""
    if dice.random() < 0.6:
        return ()
    return tuple(sorted((_one(dice, world) for _ in range(dice.randint(2, 4))), key=lambda command: command.at_s))


def _one(dice: random.Random, world: World) -> Command:
    node = dice.choice(world.nodes)
    words = dice.choice(
        (
            ("nodes", "cordon", node, "looked at by hand", "-y"),
            ("nodes", "uncordon", node, "it is fine", "-y"),
            ("nodes", "hold", node, "a fan is changed", "--for", "1h"),
            ("nodes", "release", node, "the fan is changed"),
            ("incidents", "ack", INCIDENT, "we look at it"),
            ("mode", "recommend", "we look ourselves", "-y"),
            ("mode", "act", "go on", "-y"),
        )
    )
    at_s = round(QUIET_S + dice.random() * (PORTION_S - QUIET_S), 3)
    return Command(at_s=at_s, who=dice.choice(WHO), words=words, node=node if words[0] == "nodes" else "")
