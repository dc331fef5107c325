"""What a run has left: read, and nothing more. Times are UTC seconds; of a half-written last line nothing is taken."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

HELD_IN_MEMORY = "memory.json"  # of each job, the newest step in the memory of a node that was up when the run ended
_DRAINED = re.compile(r"^\[([^\]]+)\] update_node: node (\S+) reason set to: (.*)$", re.MULTILINE)
T = TypeVar("T")


class Happened(msgspec.Struct, frozen=True):
    """A line of `strikes.jsonl`: what was done to a node. `number` is the fault's, 0 where there is none."""

    at: float
    event: str
    node: str
    number: int = 0
    kind: str = ""
    job: str = ""
    acts: str = ""


class RankLine(msgspec.Struct, frozen=True):
    """A rank came (`starts`), or has made its first step (`trains`)."""

    at: float
    event: str
    job: str
    attempt: int
    node: str
    rank: int


class StepLine(msgspec.Struct, frozen=True):
    """A step that a job has finished.

    `generation`: of its process group, in which single ranks were replaced. `world`: ranks that made it, one on each node.
    `full`: ranks of the whole job; 0 in records from before jobs could shrink.
    """

    at: float
    attempt: int
    step: int
    loss: str
    world: int
    generation: int = 0
    full: int = 0

    @property
    def nodes(self) -> int:
        """Of the whole job. The global batch is constant, so a step by fewer nodes is as much work."""
        return self.full or self.world


class Look(msgspec.Struct, frozen=True):
    """What Slurm said: of each node its state and reason, and the names of jobs."""

    at: float
    nodes: dict[str, tuple[str, str]]
    jobs: tuple[str, ...]


class Drain(msgspec.Struct, frozen=True):
    """slurmctld's log: a node got this reason."""

    at: float
    node: str
    reason: str


class Records(msgspec.Struct, frozen=True):
    """All of one run. `saved`: of each job, the newest step that it could go on from when the run ended."""

    happened: list[Happened]
    ranks: list[RankLine]
    steps: dict[str, list[StepLine]]
    looks: list[Look]
    drains: list[Drain]
    saved: dict[str, int] = {}


def read_run_records(place: Path) -> Records:
    """The records below a run's place."""
    log = (place / "slurmctld.log").read_text()
    return Records(
        happened=_lines(place / "strikes.jsonl", Happened),
        ranks=_lines(place / "ranks.jsonl", RankLine),
        steps={path.stem.partition("-")[2]: _lines(path, StepLine) for path in sorted(place.glob("steps-*.jsonl"))},
        looks=_lines(place / "scheduler.jsonl", Look),
        saved=_read_saved(place),
        drains=[Drain(datetime.fromisoformat(at).timestamp(), node, why) for at, node, why in _DRAINED.findall(log)],
    )


def _read_saved(place: Path) -> dict[str, int]:
    held = place / HELD_IN_MEMORY
    memory = msgspec.json.decode(held.read_bytes(), type=dict[str, int]) if held.exists() else {}
    saved = {
        path.name: max((int(step.name.partition("-")[2]) for step in path.glob("step-*")), default=0)
        for path in (place / "checkpoints").glob("*")
    }
    return {job: max(saved.get(job, 0), memory.get(job, 0)) for job in saved | memory}


def _lines(path: Path, kind: type[T]) -> list[T]:
    decoder = msgspec.json.Decoder(kind)
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [decoder.decode(line) for line in whole.splitlines()]
