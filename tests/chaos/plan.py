"""What one run will do, drawn from its seed and from nothing else: the same seed is the same plan, on any machine."""

from __future__ import annotations

import hashlib
import random

import msgspec

PORTION_S = 12.0  # faults and disasters begin within it
QUIET_S = 2.0  # before the first of them
GPUS = 4  # of each node
SWAPS = 0.5  # share of the runs whose launcher replaces ranks


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What runs. `scheduler` is local, kubernetes or slurm; `database` is sqlite or postgresql (then two centres).

    The job has ranks on `trainers` nodes. With `swap` its launcher replaces ranks, processes wait on `spares` further nodes, and
    with `least` above zero it goes on with as few nodes as that.
    """

    nodes: tuple[str, ...]
    scheduler: str
    database: str
    centres: int
    trainers: int
    isolated_max: int
    gap_s: float
    per_hour: int
    failing_preflight: tuple[str, ...] = ()  # nodes whose test does not pass
    swap: bool = False
    spares: int = 0
    least: int = 0
    ranks_per_node: int = 1

    @property
    def ranks(self) -> int:
        """How many ranks the job has at its beginning."""
        return self.trainers * self.ranks_per_node


class KernelLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line for a node's kernel log. `author` is kernel, or a process that pretends."""

    at_s: float
    node: str
    author: str
    code: int  # 0: garbage
    gpu: int
    text: str


class Strike(msgspec.Struct, frozen=True, kw_only=True):
    """One disaster: what, whom, from when to when; seconds from the run's beginning."""

    disaster: str
    at_s: float
    until_s: float
    target: str
    detail: dict[str, float | str] = {}


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator says at the terminal; `node` is empty for what concerns the whole cluster."""

    at_s: float
    who: str
    words: tuple[str, ...]
    node: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    seed: int
    world: World
    lines: tuple[KernelLine, ...]
    strikes: tuple[Strike, ...]
    commands: tuple[Command, ...]

    @property
    def digest(self) -> str:
        """The plan in twelve letters."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:12]


def draw_world(dice: random.Random) -> World:
    """Mostly small: what costs more comes less often."""
    nodes = tuple(f"n{number}" for number in range(1, dice.choices((2, 3, 4), (5, 4, 2))[0] + 1))
    database = dice.choices(("sqlite", "postgresql"), (3, 1))[0]
    world = World(
        nodes=nodes,
        scheduler=dice.choices(("local", "kubernetes", "slurm"), (2, 1, 1))[0],
        database=database,
        centres=2 if database == "postgresql" else 1,
        trainers=dice.choice((1, 2, len(nodes))),
        isolated_max=dice.choice((1, 1, 2)),
        gap_s=dice.choice((0.0, 1.0, 3.0)),
        per_hour=dice.choice((1, 2, 6)),
        failing_preflight=tuple(node for node in nodes if dice.random() < 0.15),
    )
    return _with_swap(dice, world) if dice.random() < SWAPS else world


def _with_swap(dice: random.Random, world: World) -> World:
    """The same, and lost ranks are replaced: by spares, by going on with fewer nodes, or by either."""
    trainers = dice.randint(min(2, len(world.nodes) - 1), len(world.nodes))
    free = len(world.nodes) - trainers
    spares = dice.randint(min(1, free), free)
    elastic = spares == 0 or dice.random() < 0.5
    return msgspec.structs.replace(
        world,
        swap=True,
        trainers=trainers,
        spares=spares,
        least=dice.randint(1, max(1, trainers - 1)) if elastic else 0,
        ranks_per_node=dice.choice((1, 1, 2)),
    )
