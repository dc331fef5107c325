"""A training job on a simulated clock: which collectives has each rank's host launched at a given time?

Every rank runs the same program. The host launches its operations in order, ahead of the GPU by at most a queue's
length, and waits for the GPU where the program says so. The GPU runs them in order; a collective ends when all members
have begun it. So a rank that stops, or whose GPU does, holds the others up as far as in a real job.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthd.nccl.ras_answer import Communicator, MissingRank, RankCounts, RasAnswer, RasProcess
from tests.nodes.nccl_ras.documents import GPUS, KINDS, Gone, answer, communicator

Times = NDArray[np.float64]
QUEUE = 16  # operations that a host may be ahead: about a step, as with 1024 kernels of a real one
LAUNCH_S = 20e-6
NEVER = np.inf


@dataclass(frozen=True)
class Op:
    """One operation: compute, receive (from the stage before), collective, sync (the host waits for its GPU) or host work.

    `ranks`: only these, or all. `seconds`: of the GPU, or of the host.
    """

    what: str
    seconds: float = 0.0
    group: str = ""
    kind: str = "AllReduce"
    ranks: Sequence[int] = ()
    counted: bool = True  # False: within a CUDA graph


@dataclass(frozen=True)
class Fault:
    """What happens to some ranks at operation number `at`: their host or GPU stops for `seconds`, or they call otherwise.

    `what`: host, gpu, death (host and GPU) or call (another kind of collective).
    """

    what: str
    ranks: Sequence[int]
    at: int
    seconds: float = NEVER


@dataclass
class SimulatedJob:
    """`groups`: kind of group → the group's number of each rank. `stages`: of a pipeline, by rank."""

    ranks: int
    program: Sequence[Op]
    groups: Mapping[str, NDArray[np.int64]]
    seed: int = 0
    jitter: float = 0.02
    faults: Sequence[Fault] = ()
    stage: int = 0  # ranks of a pipeline's stage; 0: no pipeline
    launched: dict[tuple[str, str], list[Times]] = field(default_factory=dict)
    reached: list[Times] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.seed)
        host = gpu = np.zeros(self.ranks)
        recent: list[Times] = []
        for number, op in enumerate(self.program):
            mask = self._mask(op.ranks) if op.ranks else np.ones(self.ranks, bool)
            noise = 1 + self.jitter * random.exponential(1.0, self.ranks)
            host = host + mask * (op.seconds if op.what == "host" else LAUNCH_S)
            if len(recent) >= QUEUE:
                host = np.maximum(host, recent[-QUEUE])
            host = host + self._fault_s(number, ("host", "death"))
            gpu = self._run_on_gpu(op, number, host, np.maximum(gpu, host), mask, noise) + self._fault_s(
                number, ("gpu",)
            )
            if op.what == "sync":
                host = np.where(mask, np.maximum(host, gpu), host)
            recent.append(gpu)
            self.reached.append(host)
        self._done = recent

    def _run_on_gpu(
        self, op: Op, number: int, host: Times, begin: Times, mask: NDArray[np.bool_], noise: Times
    ) -> Times:
        """When each GPU has done the operation that it could begin at `begin`, right after its launch."""
        if op.what == "compute":
            return np.asarray(begin + mask * op.seconds * noise)
        if op.what == "collective":
            if op.counted:
                self._note_launch(op, host, number)
            return self._join(begin, self.groups[op.group]) + op.seconds
        return self._receive(begin) if op.what == "receive" and self.stage else begin

    def _mask(self, ranks: Sequence[int]) -> NDArray[np.bool_]:
        return np.isin(np.arange(self.ranks), ranks)

    def _fault_s(self, number: int, kinds: Sequence[str]) -> Times:
        lost = np.zeros(self.ranks)
        for fault in self.faults:
            if fault.at == number and fault.what in kinds:
                lost[self._mask(fault.ranks)] += fault.seconds
        return lost

    def _note_launch(self, op: Op, host: Times, number: int) -> None:
        others = {rank for fault in self.faults if fault.what == "call" and fault.at == number for rank in fault.ranks}
        odd = self._mask(sorted(others))
        self.launched.setdefault((op.group, op.kind), []).append(np.where(odd, NEVER, host))
        if others:
            kind = next(kind for kind in KINDS if kind != op.kind)
            self.launched.setdefault((op.group, kind), []).append(np.where(odd, host, NEVER))

    def _join(self, begin: Times, group: NDArray[np.int64]) -> Times:
        latest = np.full(int(group.max()) + 1, -NEVER)
        np.maximum.at(latest, group, begin)
        return latest[group]

    def _receive(self, begin: Times) -> Times:
        rows = begin.reshape(-1, self.stage).copy()
        for row in range(1, len(rows)):
            rows[row] = np.maximum(rows[row], rows[row - 1])
        return rows.reshape(-1)

    def working_at(self, now: float, ranks: Iterable[int]) -> set[RasProcess]:
        """The ranks whose GPU has something to do: their hosts have launched more than is done."""
        launched = (self._stack("host", self.reached) <= now).sum(axis=0)
        done = (self._stack("gpu", self._done) <= now).sum(axis=0)
        return {_process(rank) for rank in ranks if launched[rank] > done[rank]}

    @property
    def ends_at(self) -> float:
        """When the program ends, or no rank gets any further."""
        return float(max(np.max(each, initial=0, where=np.isfinite(each)) for each in self.reached))

    def launches_at(self, at: Times) -> dict[str, dict[str, NDArray[np.int64]]]:
        """Each rank's launches until its moment: kind of group → kind of collective → number by rank."""
        found: dict[str, dict[str, NDArray[np.int64]]] = {}
        for (group, kind), times in self.launched.items():
            stacked = self._stack((group, kind), times)
            found.setdefault(group, {})[kind] = (stacked <= at[None, :]).sum(axis=0)
        return found

    def _stack(self, name: Hashable, times: list[Times]) -> Times:
        cache: dict[Hashable, Times] = self.__dict__.setdefault("_cache", {})
        if name not in cache:
            cache[name] = np.array(times).reshape(-1, self.ranks)
        return cache[name]

    def communicators_at(
        self, now: float, silent: Sequence[int] = (), skew_s: float = 0.05
    ) -> dict[str, dict[int, Any]]:
        """Each communicator's counts by rank, as RAS would collect them: ranks one after the other."""
        at = now + np.random.default_rng(int(now * 1000)).uniform(0, skew_s, self.ranks)
        launches = self.launches_at(at)
        found: dict[str, dict[int, Any]] = {}
        for group, numbers in self.groups.items():
            kinds = launches.get(group, {})
            zero = np.zeros(self.ranks, np.int64)
            table = np.stack([kinds.get(kind, zero) for kind in KINDS], axis=1).tolist()
            for rank in range(self.ranks):
                name = f"0x{abs(hash(group)) % 0xFFFF:x}{int(numbers[rank]):04x}"
                found.setdefault(name, {})[rank] = Gone() if rank in silent else tuple(table[rank])
        return found

    def document_at(self, now: float, silent: Sequence[int] = ()) -> dict[str, Any]:
        """The answer as JSON would hold it."""
        return answer(communicator(name, counts) for name, counts in self.communicators_at(now, silent).items())

    def answer_at(self, now: float, silent: Sequence[int] = ()) -> RasAnswer:
        """The answer as the parser returns it."""
        found = []
        for name, counts in self.communicators_at(now, silent).items():
            ranks, missing = [], []
            for number, (rank, counted) in enumerate(counts.items()):
                process = _process(rank)
                if isinstance(counted, Gone):
                    missing.append(MissingRank(number, process, silent=True))
                else:
                    ranks.append(RankCounts(number, process, True, counted))
            found.append(Communicator(f"{name}:0x1:0x2", tuple(ranks), tuple(missing)))
        return RasAnswer("2.29.2", tuple(found))


@lru_cache(maxsize=100_000)
def _process(rank: int) -> RasProcess:
    return RasProcess(f"10.0.0.{rank // GPUS + 1}", 4000 + rank % GPUS, rank % GPUS)
