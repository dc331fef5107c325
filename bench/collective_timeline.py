"""Simulated jobs with clocks: what the flight recorders hold when a GPU fails inside a collective, or a job moves on.

Each rank has a CPU that issues operations ahead of its GPU, a compute stream, and a stream for gradient buckets. The
groups are those of Megatron with experts: tensor, expert, data parallel and the whole job. `bench/hang_jobs.py` simulates
jobs without clocks. Neither imports the detector.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from healthctl.flight_recorder.dumps import Dump, Entry, Group, Progress

NEVER = float("inf")
STEPS, LAYERS = 4, 3
ISSUE_S, KERNEL_S, CALL_S = 2e-5, 2e-3, 1e-3
FAULTS = ("gpu error", "gpu hung in its kernel", "cpu stuck", "lost in the network", "moving")


class Case(NamedTuple):
    """One kind of job. `goes_on`: after a GPU error the program issues calls until it waits for the GPU."""

    fault: str
    timed: bool
    active_only: bool
    goes_on: bool = False
    culprits: int = 1


@dataclass
class Timeline:
    """A simulated job: the dumps of its ranks, the true culprits, and the group in which it stands still first."""

    case: Case
    dumps: dict[int, Dump]
    world: int
    culprits: frozenset[int]
    group: str = ""


@dataclass
class _Op:
    """One operation of a rank: a kernel (no group), a collective, or a wait of the CPU for the GPU (`sync`)."""

    group: str = ""
    name: str = ""
    behind: bool = False
    sync: bool = False
    number: int = 0
    seconds: float = 0.0
    issued: float = NEVER
    began: float = NEVER
    ended: float = NEVER


@dataclass
class _Stream:
    """Operations that a GPU executes one after the other."""

    ops: list[_Op] = field(default_factory=list)
    place: int = 0
    free_at: float = 0.0


@dataclass
class _Rank:
    program: list[_Op]
    issued: int = 0
    cpu_time: float = 0.0
    main: _Stream = field(default_factory=_Stream)
    buckets: _Stream = field(default_factory=_Stream)
    cpu_stops: float = NEVER
    gpu_fails: float = NEVER


def _build_groups(world: int, tensor: int, expert: int) -> dict[str, list[int]]:
    groups = {"0": list(range(world))}
    for name, size in (("TENSOR", tensor), ("EXPERT", expert)):
        groups |= {f"{name}{i}": list(range(i * size, i * size + size)) for i in range(world // size)}
    data = {f"DATA{i}": list(range(i, world, tensor)) for i in range(tensor)}
    return groups | data | {f"BUCKETS{i}": members for i, members in enumerate(data.values())}


def _build_program(rank: int, tensor: int, expert: int, rng: random.Random) -> list[_Op]:
    tp, ep, place = f"TENSOR{rank // tensor}", f"EXPERT{rank // expert}", rank % tensor
    ops: list[_Op] = []
    for step in range(STEPS):
        for backward in (False, True):
            for _ in range(LAYERS):
                ops += [_Op(), _Op(tp, "_all_gather_base"), _Op(), _Op(ep, "all_to_all"), _Op(), _Op(ep, "all_to_all")]
                ops += [_Op(), _Op(tp, "_reduce_scatter_base")]
                if backward:
                    ops.append(_Op(f"BUCKETS{place}", "_reduce_scatter_base", behind=True))
        ops += [_Op(f"DATA{place}", "all_reduce"), _Op("0", "all_reduce"), *[_Op(sync=True)] * (step % 2)]
        if step == 1:
            ops.append(_Op(tp, "broadcast"))
    numbers: dict[str, int] = {}
    for op in ops:
        op.seconds = (KERNEL_S if not op.group else CALL_S) * rng.uniform(0.8, 1.2)
        if op.group:
            op.number = numbers[op.group] = numbers.get(op.group, 0) + 1
    return ops


class _Simulation:
    def __init__(self, ranks: list[_Rank], groups: dict[str, list[int]]) -> None:
        self.ranks, self.groups = ranks, groups
        self.lost: tuple[str, int] | None = None
        self.left_inside: dict[tuple[str, int], set[int]] = {}
        self._inside: dict[tuple[str, int], dict[int, _Op]] = {}
        self._queue: deque[int] = deque(range(len(ranks)))

    def run(self) -> None:
        """Run until nothing can move."""
        while self._queue:
            me = self._queue.popleft()
            rank = self.ranks[me]
            while any([self._issue(rank), *(self._execute(me, rank, each) for each in (rank.main, rank.buckets))]):
                pass

    def _issue(self, rank: _Rank) -> bool:
        moved = False
        while rank.issued < len(rank.program):
            op = rank.program[rank.issued]
            if op.sync:
                done = max((each.ended for each in rank.program[: rank.issued] if not each.sync), default=0.0)
                if done == NEVER:
                    break
                op.ended = rank.cpu_time = max(rank.cpu_time, done)
            rank.cpu_time += ISSUE_S
            if rank.cpu_time >= rank.cpu_stops:
                break
            op.issued = rank.cpu_time
            rank.issued += 1
            if not op.sync:
                (rank.buckets if op.behind else rank.main).ops.append(op)
            moved = True
        return moved

    def _execute(self, me: int, rank: _Rank, stream: _Stream) -> bool:
        moved = False
        while stream.place < len(stream.ops):
            op = stream.ops[stream.place]
            if op.began == NEVER:
                ready = self._ready_time(rank, stream, op)
                if ready >= rank.gpu_fails:
                    break
                op.began, moved = ready, True
                if op.group:
                    self._enter(me, op)
                elif ready + op.seconds <= rank.gpu_fails:
                    op.ended = ready + op.seconds
            if op.ended == NEVER:
                break
            stream.free_at = op.ended
            stream.place += 1
        return moved

    @staticmethod
    def _ready_time(rank: _Rank, stream: _Stream, op: _Op) -> float:
        """When the GPU can begin: a bucket needs the gradients until then, the reduction over `DATA` all buckets."""
        buckets = rank.buckets.ops if op.group.startswith("DATA") else ()
        ended = (each.ended for each in buckets if each.issued < op.issued)
        return max((stream.free_at, op.issued, rank.main.free_at, *ended))

    def _enter(self, me: int, op: _Op) -> None:
        key = (op.group, op.number)
        inside = self._inside.setdefault(key, {})
        inside[me] = op
        if len(inside) < len(self.groups[op.group]) or key == self.lost:
            return
        ready = max(each.began for each in inside.values())
        for rank, each in inside.items():
            ended = ready + each.seconds
            if ended <= self.ranks[rank].gpu_fails and rank not in self.left_inside.get(key, ()):
                each.ended = ended
                self._queue.append(rank)


def make_timeline(case: Case, seed: int) -> Timeline:
    """Make a job; everything follows from `seed`."""
    rng = random.Random(f"{seed}/{case}")  # noqa: S311 - repeatable
    world, tensor, expert = rng.choice(((16, 2, 4), (16, 4, 8), (16, 4, 4), (32, 2, 8), (32, 8, 8), (64, 4, 16)))
    groups = _build_groups(world, tensor, expert)
    shared = rng.random()

    def build() -> list[_Rank]:
        return [_Rank(_build_program(me, tensor, expert, random.Random(f"{shared}/{me}"))) for me in range(world)]  # noqa: S311 - repeatable

    healthy = _Simulation(build(), groups)
    healthy.run()
    ranks = build()
    culprits = rng.sample(range(world), case.culprits) if case.fault not in ("moving", "lost in the network") else []
    broken = _Simulation(ranks, groups)
    at, group = _inject_fault(case, healthy, broken, culprits, rng)
    broken.run()
    writer = _DumpWriter(case, groups, at, rng)
    failed = culprits if case.fault == "gpu error" else ()
    dumps = {me: writer.write(rank, failed=me in failed) for me, rank in enumerate(ranks)}
    return Timeline(case, dumps, world, frozenset(culprits), group)


def _inject_fault(
    case: Case, healthy: _Simulation, broken: _Simulation, culprits: list[int], rng: random.Random
) -> tuple[float, str]:
    """Put the fault into `broken`, at a time when `healthy` is under way; return the time and the group of the call."""
    first = culprits[0] if culprits else rng.randrange(len(healthy.ranks))
    calls = [op for op in healthy.ranks[first].program if op.group and op.name != "broadcast"]
    place = rng.randrange(len(calls) // 4, 3 * len(calls) // 4)
    call = calls[place]
    if case.fault == "moving":
        return call.began + rng.uniform(0, 0.002), ""
    if case.fault == "lost in the network":
        broken.lost = (call.group, call.number)
        return call.ended, call.group
    if case.fault == "gpu error":
        at = call.ended - 1e-6
        broken.left_inside[call.group, call.number] = _ranks_left_inside(call, healthy, culprits, rng)
        for me in culprits:
            broken.ranks[me].gpu_fails = at
            broken.ranks[me].cpu_stops = NEVER if case.goes_on else at + rng.uniform(0, 0.001)
        return at, call.group
    for me in culprits:
        if case.fault == "cpu stuck":
            broken.ranks[me].cpu_stops = call.issued - ISSUE_S / 2
        else:
            own = [op for op in healthy.ranks[me].program if not op.group and not op.sync and op.began < call.began]
            broken.ranks[me].gpu_fails = own[-1].began + own[-1].seconds / 2
    return call.began, _next_group(healthy.ranks[first].program, broken.ranks[first].gpu_fails)


def _next_group(ops: list[_Op], at: float) -> str:
    return next((op.group for op in ops if op.group and not op.behind and op.began >= at), "")


def _ranks_left_inside(call: _Op, healthy: _Simulation, culprits: list[int], rng: random.Random) -> set[int]:
    """Return the innocents that do not come out either: sometimes some of a larger group, as in a ring or an exchange."""
    others = [rank for rank in healthy.groups[call.group] if rank not in culprits]
    if len(others) < 3 or rng.random() < 0.7:
        return set()
    return set(rng.sample(others, rng.randrange(1, len(others) // 2 + 1)))


class _DumpWriter:
    """Writes what the recorders hold: of a moving job at the time of the fault, of others after NCCL's time-out."""

    def __init__(self, case: Case, groups: dict[str, list[int]], at: float, rng: random.Random) -> None:
        self._case, self._fault_at, self._rng = case, at, rng
        self._numbers = {group: number for number, group in enumerate(groups)}
        self._groups = {group: _describe_group(number, group, groups[group]) for group, number in self._numbers.items()}
        self._ring, self._counters = rng.choice((60, 400, 2000)), rng.random() < 0.5  # old PyTorch has no counters

    def write(self, rank: _Rank, *, failed: bool) -> Dump:
        """Return the dump of one rank. The watchdog learns of ended calls with a delay, and of none once the GPU failed."""
        at = self._fault_at + (self._rng.uniform(0.0, 0.003) if self._case.fault == "moving" else 600.0)
        seen_to = self._fault_at - self._rng.uniform(0, 0.1) if failed else at
        entries: list[Entry] = []
        status: dict[str, Progress] = {}
        for op in rank.program:
            if op.group and op.issued <= at:
                entries.append(self._entry(op, len(entries), at, seen_to))
                number = str(self._numbers[op.group])
                done = op.number if op.ended <= seen_to else status.get(number, Progress()).last_completed_collective
                status[number] = Progress(op.number, -1, done)
        kept = [e for e in entries[-self._ring :] if not (self._case.active_only and e.state == "completed")]
        config = {group.name: group for key, group in self._groups.items() if str(self._numbers[key]) in status}
        return Dump(kept, config, status if self._counters else None, written_ns=_clock_ns(at))

    def _entry(self, op: _Op, record: int, at: float, seen_to: float) -> Entry:
        begun = self._case.timed and op.began <= at
        state = "completed" if op.ended <= seen_to else "started" if begun else "scheduled"
        group = self._groups[op.group]
        return Entry(
            process_group=[group.name, group.desc],
            collective_seq_id=op.number,
            record_id=record,
            pg_id=self._numbers[op.group],
            profiling_name=f"nccl:{op.name}",
            input_sizes=[[1024]],
            output_sizes=[[1024]],
            input_dtypes=["BFloat16"],
            output_dtypes=["BFloat16"],
            state=state,
            retired=state == "completed",
            time_created_ns=_clock_ns(op.issued),
            time_discovered_started_ns=1 if begun else None,
        )


def _describe_group(number: int, group: str, members: list[int]) -> Group:
    return Group(str(number), group.rstrip("0123456789") or "default_pg", str(members))


def _clock_ns(at: float) -> int:
    return int(1e9 * (1_700_000_000 + at))
