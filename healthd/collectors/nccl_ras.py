"""Asks NCCL's RAS service (2.28.7 and later) how many collectives each rank of a job has launched.

It asks in a forked process, within the network namespaces of the processes on GPUs: 22 ms of a core for 512 ranks. The
node of a job's lowest rank asks and reports at every reading; the other nodes ask ten times more rarely, and only to
learn whether they have become the first. Without a process on a GPU nothing is asked.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from healthd.collectors.machine_access import MachineAccess, Options
from healthd.nccl.hang_suspects import Totals, count_launches, find_suspects, is_progress, number_ranks, sum_launches
from healthd.nccl.ras_answer import RasAnswer, RasAnswerError, RasProcess, parse_ras_answer
from healthd.nccl.ras_client import RasRefused, enter_network_namespace, is_local_address, query_ras
from healthd.samples.metric_declaration import Family

ADDRESS = "localhost:28028"
QUERY_S = 5.0
RARELY = 10  # readings
CPU_SHARE = 0.05  # of a core at most: a job of thousands of ranks is asked more rarely
NAMESPACES_MAX = 8
SUSPECTS_MAX = 16
JOBS_MAX = 8
REMEMBERED_BYTES_MAX = 1 << 20


class RasSuspect(NamedTuple):
    """A rank that others wait for: its number in its largest communicator, of `size` ranks; -1 is unknown."""

    rank: int
    size: int
    host: str
    pid: int
    gpu: int


class RasJob(NamedTuple):
    """One job's answer. `moved`: a rank has launched a collective since the last one; `least`: what the slowest launched.

    `kind` and `suspects` (the first 16 of `suspects_total`) say whom the others would wait for, if the job stood still.
    """

    job: str  # host and pid of its first process
    moved: bool
    least: int
    ranks: int
    waiting: int
    kind: str
    suspects_total: int
    suspects: tuple[RasSuspect, ...]


class NcclRasSample(NamedTuple):
    """`at` is monotonic. `asked`: how many services were asked; `problem`: why one of them gives no counts."""

    at: float
    asked: int
    jobs: tuple[RasJob, ...]
    problem: str = ""


METRICS: tuple[Family, ...] = ()


class _Memory:
    """What is kept between readings, of each namespace and each job."""

    def __init__(self) -> None:
        self.readings = 0
        self.next: dict[int, tuple[int, float]] = {}  # namespace → the reading, and the time, when it is asked again
        self.launches: dict[str, str] = {}  # job → its `Totals` as JSON, a tenth of their size as objects


def read_nccl_ras(machine: MachineAccess, options: Options) -> NcclRasSample:
    """Return the jobs whose first rank is on this node. Option `address`: HOST:PORT, as NCCL_RAS_ADDR of the jobs.

    Raises:
        PermissionError: a job's network namespace may not be entered.
    """
    host, _, port = (*options.get("address", ()), ADDRESS)[0].rpartition(":")
    address = host.strip("[]"), int(port)
    memory: _Memory = machine.kept.setdefault("nccl_ras", _Memory())
    memory.readings += 1
    namespaces = _find_namespaces(machine)
    at, jobs, problem = time.monotonic(), [], ""
    memory.next = {inode: memory.next.get(inode, (0, at)) for inode in namespaces}
    due = [inode for inode, (reading, rested) in memory.next.items() if reading <= memory.readings and rested <= at]
    for inode in due:
        answer = _ask_namespace(machine, namespaces[inode], address, memory)
        if answer.get("denied"):
            raise PermissionError(f"{answer['denied']}: entering it needs CAP_SYS_ADMIN and CAP_SYS_PTRACE")
        first = bool(answer.get("job"))
        memory.next[inode] = memory.readings + (1 if first else RARELY), at + answer.get("cpu_s", 0.0) / CPU_SHARE
        problem = problem or answer.get("problem", "")
        if first:
            job = RasJob(*answer["job"])
            jobs.append(job._replace(suspects=tuple(RasSuspect(*each) for each in job.suspects)))
            memory.launches.pop(job.job, None)
            memory.launches[job.job] = answer["launches"]
            memory.launches = dict([*memory.launches.items()][-JOBS_MAX:])
    return NcclRasSample(at, len(due), tuple(jobs), problem)


def _find_namespaces(machine: MachineAccess) -> dict[int, str]:
    """Return the network namespaces of the processes that hold a GPU, by inode."""
    found: dict[int, str] = {}
    for pid in machine.gpu_pids:
        path = machine.path(f"/proc/{pid}/ns/net")
        try:
            found.setdefault(os.stat(path).st_ino, path)  # noqa: PTH116 - the child loads no pathlib
        except OSError:
            continue  # it has ended
    return dict([*found.items()][:NAMESPACES_MAX])


def _ask_namespace(machine: MachineAccess, path: str, address: tuple[str, int], memory: _Memory) -> dict[str, Any]:
    def ask() -> bytes:
        answer = _ask_in_fork(machine, path, address, memory.launches)
        return json.dumps({**answer, "cpu_s": time.process_time()}, separators=(",", ":")).encode()

    text = machine.run_forked(ask, QUERY_S + 1)
    answer: dict[str, Any] = {"problem": "no answer in time, or too large"} if text is None else json.loads(text)
    return answer


def _ask_in_fork(
    machine: MachineAccess, path: str, address: tuple[str, int], remembered: dict[str, str]
) -> dict[str, Any]:
    """Ask one service and reduce its answer; the caller's process changes its namespace and its memory grows."""
    try:
        enter_network_namespace(path)
    except PermissionError as error:
        return {"denied": str(error)}
    except OSError as error:
        return {"problem": str(error)}
    try:
        answer = parse_ras_answer(query_ras(address, QUERY_S))
    except (OSError, RasRefused, RasAnswerError) as error:
        return {"problem": str(error)[:200]}
    if not is_local_address(_first_responding_host(answer)):
        return {}
    numbered = number_ranks(answer)
    name = name_job(numbered)
    before, after = _decode_launches(remembered.get(name, "{}")), count_launches(answer)
    merged = _encode_launches({**before, **after})  # a communicator that was not reported once is not new later
    if len(merged) > REMEMBERED_BYTES_MAX:
        merged = _encode_launches(after)
    return {"job": describe_job(answer, before, _find_working(numbered, machine)), "launches": merged}


def _find_working(numbered: Iterable[RasProcess], machine: MachineAccess) -> set[RasProcess]:
    """Return this node's processes of the job whose GPU is busy; their pids are those of their own pid namespaces."""
    pids = {_inner_pid(machine, pid) for pid, busy in machine.gpu_pids.items() if busy}
    found = {process for process in numbered if process.pid in pids}
    here = {host for host in {process.host for process in found} if is_local_address(host)}
    return {process for process in found if process.host in here}


def _inner_pid(machine: MachineAccess, pid: int) -> int:
    for line in (machine.text(f"/proc/{pid}/status") or "").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid


def name_job(processes: Iterable[RasProcess]) -> str:
    """Return a job's name, the same at every reading: host and pid of its first process."""
    first = min(processes, default=None)
    return f"{first.host}/{first.pid}" if first else ""


def describe_job(answer: RasAnswer, before: Totals, working: AbstractSet[RasProcess] = frozenset()) -> RasJob:
    """Reduce an answer to what the check needs; `before`: the launches in the last answer of this job, or nothing."""
    numbered = number_ranks(answer)
    suspicion = find_suspects(answer, working, numbered)
    return RasJob(
        job=name_job(numbered),
        moved=is_progress(before, count_launches(answer)),
        least=min(sum_launches(answer).values(), default=0),
        ranks=len(numbered),
        waiting=suspicion.waiting,
        kind=suspicion.kind,
        suspects_total=len(suspicion.suspects),
        suspects=tuple(RasSuspect(each.rank, each.size, *each.process) for each in suspicion.suspects[:SUSPECTS_MAX]),
    )


def _first_responding_host(answer: RasAnswer) -> str:
    """Return the host of the lowest rank that answers, in the largest communicator."""
    largest = max(answer.communicators, key=lambda each: (each.size, each.name), default=None)
    return largest.ranks[0].process.host if largest and largest.ranks else ""


def _encode_launches(launches: Totals) -> str:
    pairs = {name: [number for pair in ranks.items() for number in pair] for name, ranks in launches.items()}
    return json.dumps(pairs, separators=(",", ":"))


def _decode_launches(text: str) -> Totals:
    return {name: dict(zip(pairs[::2], pairs[1::2], strict=True)) for name, pairs in json.loads(text).items()}
