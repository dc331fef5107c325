"""Simulated NCCL jobs for `bench/nccl_ras.py`: programs, what disturbs moving ones, and faults."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tests.nodes.nccl_ras.simulated_job import NEVER, Fault, Op, SimulatedJob

SIZES = (8, 16, 64, 64, 128, 256)
PROGRAMS = ("ddp", "fsdp", "tensor + pipeline + data", "sharded within nodes")
LASTS_S = 420.0
STEPS_MIN, STEPS_MAX = 30, 500
PART_S = 0.5

HUNG = {
    "a rank's host stops": "host",
    "a process dies": "death",
    "the hosts of a whole node stop": "node",
    "a rank makes another call": "call",
    "a rank's GPU stops": "gpu",
    "the same, and rank 0 alone waits for its GPU": "gpu, rank 0 waits",
    "the network stops": "network",
}


class HungJob(NamedTuple):
    """A job with a fault. `missed_at`: when the first rank that must wait has launched the call that is missed."""

    job: SimulatedJob
    culprits: frozenset[int]
    missed_at: float
    silent_from: float


def collective(group: str, kind: str = "AllReduce", *, counted: bool = True) -> Op:
    """A collective of all ranks of the groups of one kind."""
    return Op("collective", 0.001, group, kind, counted=counted)


def compute(seconds: float) -> list[Op]:
    """Work of the GPU, in parts: a host is ahead by some of them only."""
    parts = max(1, round(seconds / PART_S))
    return [Op("compute", seconds / parts)] * parts


def make_step(program: str, seconds: float, *, counted: bool = True) -> list[Op]:
    """The operations of one step of training."""
    if program == "ddp":
        part = [*compute(seconds / 6), collective("world", counted=counted)]
        return [*compute(seconds / 3), *part * 4]
    if program == "fsdp":
        forward = [collective("world", "AllGather", counted=counted), *compute(seconds / 12)]
        return [*forward * 4, *[*forward, collective("world", "ReduceScatter", counted=counted)] * 4]
    if program == "sharded within nodes":
        layer = [collective("tp", "AllGather", counted=counted), *compute(seconds / 6)]
        return [*layer * 6, collective("tp", "ReduceScatter", counted=counted), collective("dp", counted=counted)]
    micro = [Op("receive"), *compute(seconds / 4), collective("tp", counted=counted)]
    return [*micro * 3, collective("dp", counted=counted), collective("world", counted=counted)]


def make_groups(ranks: int) -> dict[str, np.ndarray]:
    """Node-sized groups, groups across nodes, and the world."""
    numbers = np.arange(ranks)
    return {"world": numbers * 0, "tp": numbers // 8, "dp": numbers % 8}


def make_program(chance: random.Random, kind: str, ranks: int, step_s: float, *, disturbed: bool) -> list[Op]:
    """A program of a few minutes; disturbed by what healthy jobs do: slow ranks, loading, saving, evaluation, graphs."""
    steps = max(STEPS_MIN, min(STEPS_MAX, int(LASTS_S / step_s)))
    slow = chance.randrange(ranks)
    waits = (*range(ranks),) if chance.random() < 0.5 else (0,)
    graphs = disturbed and chance.random() < 0.15
    late = Op("host", chance.uniform(5, 200), ranks=[chance.randrange(ranks)])  # one compiles for longer
    program: list[Op] = [late] if chance.random() < 0.5 else []
    for number in range(steps):
        if disturbed and chance.random() < 0.3:
            program.append(Op("host", chance.uniform(0, 0.2) * step_s, ranks=[slow]))
        if disturbed and chance.random() < 0.03:
            program.append(Op("host", chance.uniform(0, 7), ranks=chance.sample(range(ranks), ranks // 4)))  # its data
        program += make_step(kind, step_s, counted=not (graphs and number > 12))
        if disturbed and number % 20 == 19:
            program += [Op("sync"), Op("host", chance.uniform(1, 7), ranks=[0]), collective("world")]  # rank 0 saves
        if disturbed and number % 60 == 59:
            program += [Op("sync"), *compute(chance.uniform(20, 120))]  # evaluation, each rank for itself
        if chance.random() < 0.5:
            program.append(Op("sync", ranks=waits))
    return program


def make_moving_job(seed: int) -> SimulatedJob:
    """A job that gets on, as disturbed as healthy ones are."""
    chance = random.Random(seed)  # noqa: S311 - the same jobs every time
    ranks, kind = chance.choice(SIZES), chance.choice(PROGRAMS)
    step_s = 10 ** chance.uniform(-0.5, 1.8)
    program = make_program(chance, kind, ranks, step_s, disturbed=True)
    return SimulatedJob(ranks, program, make_groups(ranks), seed, chance.uniform(0, 0.1), stage=_stage(kind, ranks))


def make_saving_job(seed: int, save_s: float) -> SimulatedJob:
    """A job whose rank 0 keeps the others waiting now and then, while it saves."""
    chance = random.Random(seed)  # noqa: S311 - the same jobs every time
    ranks, kind = chance.choice(SIZES), chance.choice(PROGRAMS)
    program: list[Op] = []
    for _ in range(5):
        program += make_step(kind, 1.0) * 80
        program += [Op("sync"), Op("host", save_s, ranks=[0]), collective("world")]
    return SimulatedJob(ranks, program, make_groups(ranks), seed, 0.02, stage=_stage(kind, ranks))


def make_hung_job(seed: int, fault: str) -> HungJob:
    """A job of usual steps with one fault in its second half."""
    chance = random.Random(seed)  # noqa: S311 - the same jobs every time
    ranks, kind = chance.choice(SIZES[2:] if fault == "node" else SIZES), chance.choice(PROGRAMS)
    step_s = chance.uniform(0.3, 4.0)
    program = make_program(chance, kind, ranks, step_s, disturbed=False)
    if "rank 0 waits" in fault:
        program = [op for op in program if op.what != "sync"]
        length = len(make_step(kind, step_s))
        program = [
            o for i, op in enumerate(program) for o in ([op, Op("sync", ranks=[0])] if i % length == 0 else [op])
        ]
    at = chance.randrange(len(program) // 2, len(program) - 60)
    at = next(number for number in range(at, len(program)) if program[number].what == "collective")
    rank = chance.randrange(1, ranks)
    culprits = [*range(rank // 8 * 8, rank // 8 * 8 + 8)] if fault == "node" else [rank]
    faults = _list_faults(fault, culprits, ranks, at)
    job = SimulatedJob(ranks, program, make_groups(ranks), seed, 0.02, faults, _stage(kind, ranks))
    missed_at = _find_missed_call(job, culprits, at)
    named = frozenset() if fault == "network" else frozenset(culprits)
    silent_from = missed_at + chance.uniform(0.5, 6) if fault == "death" else NEVER
    return HungJob(job, named, missed_at, silent_from)


def _list_faults(fault: str, culprits: Sequence[int], ranks: int, at: int) -> list[Fault]:
    if fault == "call":
        return [Fault("call", culprits, at), Fault("gpu", range(ranks), at)]
    if fault == "network":
        return [Fault("gpu", range(ranks), at)]
    return [Fault({"node": "host"}.get(fault, fault.partition(",")[0]), culprits, at)]


def _find_missed_call(job: SimulatedJob, culprits: Sequence[int], at: int) -> float:
    """When the first of the others launched what the culprits did not, and not before those stopped."""
    others = [rank for rank in range(job.ranks) if rank not in culprits]
    stopped = max(job.reached[at - 1][rank] for rank in culprits)
    return float(max(stopped, min(job.reached[at][rank] for rank in others)))


def _stage(kind: str, ranks: int) -> int:
    return max(8, ranks // 4) if kind.startswith("tensor") else 0
