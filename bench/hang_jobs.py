"""Pretended training jobs that come to a stand: what each rank's flight recorder would hold, and who was made to blame.

A job is data × pipeline × tensor parallel. Each rank runs the same kind of program: messages between stages, collectives in
its tensor group, gradient buckets behind training's back in its data group, and some over all ranks. One fault is put in;
then everything runs until nothing can move any more.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from healthctl.flight_recorder.dumps import Dump, Entry, Group, Progress

STEPS, WINDOW_MAX = 3, 12
FAULTS = (
    "healthy", "dead rank", "stuck on CPU", "stuck on GPU", "other operation", "other size", "other type",
    "other order", "call left out", "collective lost in the network", "message lost in the network",
)  # fmt: skip
NOBODY = ("healthy", "collective lost in the network", "message lost in the network")
KINDS = dict.fromkeys(FAULTS, "mismatched_collectives") | {
    "healthy": "none", "dead rank": "dead_rank", "stuck on CPU": "stuck_compute", "stuck on GPU": "stuck_compute",
    "collective lost in the network": "network", "message lost in the network": "network",
}  # fmt: skip


class Layout(NamedTuple):
    """Sizes of the three ways to be parallel; `ranks` is their product. Tensor ranks are neighbours, then stages, then data."""

    data: int
    stages: int
    tensor: int

    @property
    def ranks(self) -> int:
        """Of the whole job."""
        return self.data * self.stages * self.tensor


class Call(NamedTuple):
    """One call of a program. `to`: the other end of a message; `behind`: training goes on without waiting for it."""

    group: str
    name: str
    size: int = 1024
    dtype: str = "BFloat16"
    to: int = -1
    behind: bool = False
    wait: bool = False  # not a call: waits for those behind


@dataclass
class Job:
    """What is known of a job that stands still, and the truth."""

    fault: str
    culprits: frozenset[int]
    dumps: dict[int, Dump]
    world: int
    reporter: int = -1  # the rank whose watchdog spoke first


@dataclass
class _Rank:
    program: list[Call]
    keys: list[tuple[object, ...]] = field(default_factory=list)  # of each call: what the others call it by
    numbers: list[tuple[int, int]] = field(default_factory=list)  # collectives and messages of the group until then
    head: int = 0
    stop_cpu: int = 1 << 30
    stop_gpu: int = 1 << 30


class _Members:
    def __init__(self, layout: Layout) -> None:
        d, p, t = layout
        self.layout = layout
        self.of: dict[str, list[int]] = {"world": list(range(layout.ranks)), "metrics": list(range(layout.ranks))}
        for i in range(d * p):
            self.of[f"tp{i}"] = list(range(i * t, i * t + t))
        for i in range(p * t):
            self.of[f"dp{i}"] = [i + k * p * t for k in range(d)]
        for i in range(d):
            for j in range(t):
                self.of[f"pp{i * t + j}"] = [i * p * t + k * t + j for k in range(p)]

    def names(self, rank: int) -> tuple[str, str, str, int]:
        _, p, t = self.layout
        stage = rank // t % p
        return f"tp{rank // t}", f"dp{rank % (p * t)}", f"pp{rank // (p * t) * t + rank % t}", stage


def _program(rank: int, members: _Members, microbatches: int) -> list[Call]:
    tp, dp, pp, stage = members.names(rank)
    _, stages, t = members.layout
    wide = members.layout.data > 1
    calls: list[Call] = []
    for step in range(STEPS):
        for forward in (True, False):
            before, after = (rank - t, rank + t) if forward else (rank + t, rank - t)
            first, last = (0, stages - 1) if forward else (stages - 1, 0)
            for _ in range(microbatches):
                if stage != first:
                    calls.append(Call(pp, "recv", 4096, to=before))
                if t > 1:
                    calls += [Call(tp, "all_reduce", 2048), Call(tp, "_all_gather_base", 512)]
                if stage != last:
                    calls.append(Call(pp, "send", 4096, to=after))
        if wide:
            calls += [Call(dp, "_reduce_scatter_base", 8192 << bucket, "Float", behind=True) for bucket in range(3)]
            calls += [Call("", "", wait=True), Call(dp, "_all_gather_base", 8192)]
        calls += [Call("world", "all_reduce", 1, "Float"), Call("metrics", "all_reduce", 16, "Float")]
        if step == 1:
            calls.append(Call("world", "barrier", 1, "Byte"))
    return calls


def _number(rank: _Rank, me: int) -> None:
    """Which instance of a collective or message each call is, as this rank counts."""
    collectives: dict[str, int] = {}
    messages: dict[str, int] = {}
    pairs: dict[tuple[object, ...], int] = {}
    for call in rank.program:
        if call.wait:
            key: tuple[object, ...] = ()
        elif call.to >= 0:
            way = (me, call.to) if call.name == "send" else (call.to, me)
            pairs[call.group, way] = pairs.get((call.group, way), 0) + 1
            messages[call.group] = messages.get(call.group, 0) + 1
            key = (call.group, way, pairs[call.group, way])
        else:
            collectives[call.group] = collectives.get(call.group, 0) + 1
            key = (call.group, collectives[call.group])
        rank.keys.append(key)
        rank.numbers.append((collectives.get(call.group, 0), messages.get(call.group, 0)))


def _run(ranks: list[_Rank], members: _Members, broken: set[tuple[object, ...]]) -> set[tuple[object, ...]]:
    """Until nothing moves. Every rank's calls begin in their order; returns what came to an end."""
    there: dict[tuple[object, ...], list[tuple[int, Call]]] = {}
    ended: set[tuple[object, ...]] = set()
    begun: set[tuple[int, int]] = set()
    queue = deque(range(len(ranks)))
    while queue:
        me = queue.popleft()
        rank = ranks[me]
        while rank.head < min(len(rank.program), rank.stop_cpu, rank.stop_gpu):
            call, key = rank.program[rank.head], rank.keys[rank.head]
            if call.wait:
                behind = [k for c, k in zip(rank.program[: rank.head], rank.keys, strict=False) if c.behind]
                if not all(k in ended for k in behind[-3:]):
                    break
                rank.head += 1
                continue
            if (me, rank.head) not in begun:
                begun.add((me, rank.head))
                here = there.setdefault(key, [])
                here.append((me, call))
                needed = 2 if call.to >= 0 else len(members.of[call.group])
                alike = len({(c.size, c.dtype, "message" if c.to >= 0 else c.name) for _, c in here}) == 1
                if len(here) == needed and alike and key not in broken:
                    ended.add(key)
                    queue.extend(other for other, _ in here if other != me)
            if key not in ended and (not call.behind or key in broken):  # a group's calls run one after the other
                break
            rank.head += 1
    return ended


def make_hang_job(layout: Layout, fault: str, seed: int, *, lost: float = 0.0) -> Job:
    """A job with one fault; everything about it follows from `seed`. `lost`: the share of dumps that went astray."""
    for attempt in range(50):
        job = _make(layout, fault, random.Random(f"{seed}/{attempt}/{fault}/{layout}"), lost)  # noqa: S311 - repeatable
        if job is not None:
            return job
    raise ValueError(f"{fault} does not stop {layout}")


def _make(layout: Layout, fault: str, rng: random.Random, lost: float) -> Job | None:
    members = _Members(layout)
    microbatches = rng.choice((1, 2)) if layout.ranks < 4096 else 1
    ranks = [_Rank(_program(me, members, microbatches)) for me in range(layout.ranks)]
    culprit = rng.randrange(layout.ranks)
    place = _spoil(ranks[culprit], fault, rng, members)
    if place is None:
        return None
    for me, rank in enumerate(ranks):
        _number(rank, me)
    broken = {ranks[culprit].keys[place]} if "lost" in fault else set()
    ended = _run(ranks, members, broken)
    stands = any(rank.head < len(rank.program) for rank in ranks)
    if stands == (fault == "healthy"):
        return None
    writer = _Writer(members, rng, ended, timed=fault == "stuck on GPU" or rng.random() < 0.5)
    dumps = {me: writer.dump(me, rank) for me, rank in enumerate(ranks)}
    if fault == "dead rank":
        del dumps[culprit]
    for me in list(dumps):
        if me != culprit and rng.random() < lost:
            del dumps[me]
    reporters = sorted(writer.waiting & dumps.keys())
    job = Job(fault, frozenset() if fault in NOBODY else frozenset({culprit}), dumps, layout.ranks)
    job.reporter = rng.choice(reporters) if reporters else -1
    return job


def _spoil(rank: _Rank, fault: str, rng: random.Random, members: _Members) -> int | None:
    """Put the fault into one rank's program; returns the place, None if it cannot be there."""
    calls = rank.program
    place = rng.randrange(len(calls) // 3, len(calls) - 1)
    call, after = calls[place], calls[place + 1]
    size = 0 if call.wait or call.to >= 0 else len(members.of[call.group])
    fits = {
        "stuck on GPU": not call.wait,
        "message lost in the network": call.to >= 0,
        "collective lost in the network": size > 1,
        "other order": {call.group, after.group} == {"world", "metrics"},
    }
    spoilt: dict[str, list[Call]] = {
        "other operation": [call._replace(name="barrier" if call.name != "barrier" else "all_reduce"), after],
        "other size": [call._replace(size=call.size + 8), after],
        "other type": [call._replace(dtype="Half"), after],
        "other order": [after, call],
        "call left out": [after],
    }
    if not fits.get(fault, fault not in spoilt or (size > 2 and not call.behind)):
        return None
    if fault in ("dead rank", "stuck on CPU"):
        rank.stop_cpu = place
    elif fault == "stuck on GPU":
        rank.stop_gpu = place
    calls[place : place + 2] = spoilt.get(fault, [call, after])
    return place


class _Writer:
    """Writes what a rank's recorder would: the last calls in a ring, closed calls of several, other names on other ranks."""

    def __init__(self, members: _Members, rng: random.Random, ended: set[tuple[object, ...]], *, timed: bool) -> None:
        self._members, self._rng, self._ended, self._timed = members, rng, ended, timed
        self._window = rng.choice((0, 3, WINDOW_MAX))
        self._ring = rng.choice((12 + 2 * self._window, 50, 2000))  # always holds what is under way, twice for messages
        self._named_by_rank = rng.random() < 0.3
        self._batched = rng.random() < 0.5
        self._reports = rng.random() < 0.7
        self._texts: dict[str, str] = {}
        self.waiting: set[int] = set()

    def dump(self, me: int, rank: _Rank) -> Dump:
        """Of one rank."""
        entries: list[Entry] = []
        issued = min(rank.head + 1 + self._window, rank.stop_cpu, len(rank.program))
        config = {}
        last: dict[str, int] = {}
        for place, call in enumerate(rank.program[:issued]):
            if call.wait:
                if place >= rank.head:
                    break
                continue
            key = rank.keys[place]
            begun = place < rank.head or (place == rank.head and rank.stop_gpu > place)
            state = "completed" if key in self._ended and begun else "started" if begun and self._timed else "scheduled"
            if state != "completed" and begun:
                self.waiting.add(me)
            name, desc = self._name(call.group, me)
            if name not in config:
                config[name] = Group(name, desc, self._text(call.group))
            last[call.group] = rank.numbers[place][0]
            entries += self._entries(me, call, rank.numbers[place], (name, desc), state, (place, len(entries)))
        status = {"0": Progress(last.get("world", 0), -1, -1)}
        return Dump(entries[-self._ring :], config, status)

    def _text(self, group: str) -> str:
        if group not in self._texts:
            self._texts[group] = str(self._members.of[group])
        return self._texts[group]

    def _name(self, group: str, me: int) -> tuple[str, str]:
        if group == "world":
            return "0", "default_pg"
        role = group.rstrip("0123456789")
        number = 1 + list("mtdp").index(role[0])
        if self._named_by_rank:
            return f"{number * 100 + me % 7}", role
        return f"{number}{group[len(role) :]}", role

    def _entries(
        self, me: int, call: Call, numbers: tuple[int, int], group: tuple[str, str], state: str, at: tuple[int, int]
    ) -> list[Entry]:
        name, (place, record) = call.name, at
        if call.to >= 0:
            own, other = (self._members.of[call.group].index(rank) for rank in (me, call.to))
            name = f"{call.name} {own}{'->' if call.name == 'send' else '<-'}{other}"
        entry = Entry(
            process_group=list(group),
            collective_seq_id=numbers[0],
            p2p_seq_id=numbers[1],
            record_id=record,
            profiling_name=f"nccl:{name}",
            input_sizes=[[call.size]],
            output_sizes=[[call.size]],
            input_dtypes=[call.dtype],
            output_dtypes=[call.dtype],
            state=state,
            retired=state == "completed" or (self._reports and state == "started" and place % 3 == 0),
            is_p2p=call.to >= 0,
            time_created_ns=10**9 * (place + 1) + self._rng.randrange(10**7),
            time_discovered_started_ns=1 if self._timed and state != "scheduled" else None,
        )
        if call.to < 0 or not self._batched:
            return [entry]
        part = msgspec.structs.replace(entry, state="scheduled", retired=False, time_discovered_started_ns=None)
        nothing: dict[str, Any] = {"input_sizes": [], "output_sizes": [], "input_dtypes": [], "output_dtypes": []}
        closing = msgspec.structs.replace(entry, record_id=record + 1, profiling_name="nccl:coalesced", **nothing)
        return [part, closing]
