"""NCCL's RAS counts as a hang detector: false verdicts on moving jobs, culprits and seconds of hung ones, CPU cost.

    python -m bench.nccl_ras moving [JOBS] | saves [JOBS] | hung [JOBS]
    python -m bench.nccl_ras cost | live

1000 moving jobs, 100 that save for a minute, 60 of each fault. `cost`: of a query, with a real server. `live`: three
hung jobs in real time, a real server and a real healthd with its defaults.

Simulated jobs are read every two seconds from a random moment on, as the source child does; a verdict takes up to a
tick of healthd's main loop longer. Seconds count from the first missed call.
"""

from __future__ import annotations

import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from bench.nccl_jobs import HUNG, HungJob, make_groups, make_hung_job, make_moving_job, make_saving_job
from healthd.checks.nccl_ras_checks import CHECK, Limits, NcclRasCheck
from healthd.collectors import nccl_ras
from healthd.collectors.machine_access import MachineAccess
from healthd.collectors.nccl_ras import NcclRasSample, RasJob, describe_job, read_nccl_ras
from healthd.findings.facts import Moment, Raise
from healthd.nccl.hang_suspects import Totals, count_launches
from healthd.thresholds import load_thresholds
from tests.e2e.healthd_node import Node, fake_nvml
from tests.nodes.nccl_ras.documents import GPUS, answer, communicator, write_answer
from tests.nodes.nccl_ras.server import RasServer
from tests.nodes.nccl_ras.simulated_job import NEVER, SimulatedJob

EVERY_S = 2.0
TICK_S = 1.1
WATCHED_S = 60.0  # after the fault
TARGET_S = 15.0


class Verdict(NamedTuple):
    """One report: when, and whom it names."""

    at: float
    kind: str
    ranks: frozenset[int]


def read_jobs(
    job: SimulatedJob, until: float, silent: frozenset[int], silent_from: float, start: float
) -> Iterator[tuple[float, RasJob]]:
    """What the collector would read."""
    before: Totals = {}
    for number in count():
        at = start + number * EVERY_S
        if at > until:
            return
        read = job.answer_at(at, sorted(silent) if at >= silent_from else ())
        yield at, describe_job(read, before, job.working_at(at, range(GPUS)))
        before = {**before, **count_launches(read)}


def watch_job(
    job: SimulatedJob, until: float, seed: int, silent: frozenset[int] = frozenset(), silent_from: float = NEVER
) -> list[Verdict]:
    """Every report of a job, the first of a kind and a pause."""
    chance = random.Random(seed)  # noqa: S311 - the same jobs every time
    check = NcclRasCheck(load_thresholds().section(CHECK, Limits))
    verdicts: list[Verdict] = []
    active: set[str] = set()
    for at, read in read_jobs(job, until, silent, silent_from, chance.uniform(0, EVERY_S)):
        facts = check.judge(NcclRasSample(at, 1, (read,)), Moment(at, at))
        raised = {fact.code for fact in facts if isinstance(fact, Raise)}
        if raised - active:
            named = frozenset((int(s.host.rpartition(".")[2]) - 1) * GPUS + s.gpu for s in read.suspects)
            verdicts.append(Verdict(at + chance.uniform(0, TICK_S), read.kind, named))
        active = raised
    return verdicts


def measure_moving(jobs: int) -> None:
    """False verdicts of jobs that get on."""
    false, wrong_at, hours = 0, [], 0.0
    for seed in range(jobs):
        job = make_moving_job(seed)
        hours += job.ends_at / 3600
        if verdicts := watch_job(job, job.ends_at, seed):
            false += 1
            wrong_at.append((seed, verdicts[0].kind))
    print(f"| moving jobs | {jobs} | {hours:.0f} h | {false} false | {wrong_at[:8] or ''}")


def measure_saves(jobs: int) -> None:
    """Reports of jobs whose rank 0 saves five times for a minute while the others wait."""
    first = later = 0
    for seed in range(jobs):
        job = make_saving_job(seed, 60.0)
        verdicts = watch_job(job, job.ends_at, seed)
        first += bool(verdicts)
        later += max(0, len(verdicts) - 1)
    print(
        f"| five saves of 60 s by rank 0 | {jobs} | first save reported: {first} | later ones: {later} of {4 * jobs} |"
    )


def classify(hung: HungJob, verdicts: list[Verdict]) -> str:
    """How right the last report is."""
    if any(verdict.at < hung.missed_at for verdict in verdicts):
        return "too early"
    if not verdicts or not verdicts[-1].ranks:
        return "nobody"
    named = verdicts[-1].ranks
    if named == hung.culprits:
        return "right"
    return "among others" if hung.culprits and hung.culprits <= named else "wrong"


def measure_hung(jobs: int) -> None:
    """Whom reports name, and how soon."""
    print(
        "| fault | jobs | culprits, nobody else | among others | nobody | wrong | too early | s, median | s, worst | within 15 s |"
    )
    for name, fault in HUNG.items():
        found: Counter[str] = Counter()
        delays: list[float] = []
        for seed in range(10_000, 10_000 + jobs):
            hung = make_hung_job(seed, fault)
            until = hung.missed_at + WATCHED_S
            silent = hung.culprits if hung.silent_from < NEVER else frozenset()
            verdicts = watch_job(hung.job, until, seed, silent, hung.silent_from)
            found[classify(hung, verdicts)] += 1
            delays += [v.at - hung.missed_at for v in verdicts if v.ranks and v.ranks >= hung.culprits][:1]
        delays.sort()
        times = (
            f"{delays[len(delays) // 2]:.1f} | {delays[-1]:.1f} | {sum(d <= TARGET_S for d in delays)}"
            if delays
            else "– | – | –"
        )
        row = " | ".join(str(found[each]) for each in ("right", "among others", "nobody", "wrong", "too early"))
        print(f"| {name} | {jobs} | {row} | {times} |", flush=True)


def measure_cost() -> None:
    """CPU time of one reading by the source child and its fork, and the server's answer."""
    print("| ranks | communicators of each | bytes | CPU ms | wall ms | problem |")
    nccl_ras.CPU_SHARE = 1e9  # queries follow one another at once
    for ranks in (8, 64, 512, 4096):
        job = SimulatedJob(ranks, [], make_groups(ranks))
        status = write_answer(job.document_at(0.0)).replace(b'"10.0.0.1"', b'"127.0.0.1"')
        with RasServer(partial(bytes, status)) as server:
            machine = MachineAccess()
            machine.gpu_pids = {os.getpid(): False}
            options = {"address": (f"127.0.0.1:{server.port}",)}
            read_nccl_ras(machine, options)
            children, began, times = _children_s(), time.perf_counter(), 10
            for _ in range(times):
                sample = read_nccl_ras(machine, options)
            wall, used = time.perf_counter() - began, _children_s() - children
            problem = sample.problem
        print(f"| {ranks} | 3 | {len(status):,} | {1e3 * used / times:.1f} | {1e3 * wall / times:.1f} | {problem} |")


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class LiveJob:
    """A job of 64 ranks in real time, with a rank that stops calling."""

    def __init__(self, chance: random.Random) -> None:
        self.missing, self.hung_after_s = chance.randrange(1, 64), 45 + chance.uniform(0, 3)
        self.began = time.monotonic()

    @property
    def hung_s(self) -> float:
        """Since the first missed call."""
        return time.monotonic() - self.began - self.hung_after_s

    def status(self) -> bytes:
        """The answer of its RAS service."""
        passed = time.monotonic() - self.began
        calls = int(min(passed, self.hung_after_s) * 20)
        counts = {n: (0, 0, 0, 0, calls + n % 3 * (passed < self.hung_after_s)) for n in range(64)}
        if passed >= self.hung_after_s:
            counts[self.missing] = (0, 0, 0, 0, calls - 1)
        return write_answer(answer([communicator("0xab", counts)])).replace(b'"10.0.0.1"', b'"127.0.0.1"')


def measure_live() -> None:
    """Three hung jobs in real time, by a healthd with its defaults."""
    for seed in (1, 2, 3):
        job = LiveJob(random.Random(seed))  # noqa: S311 - the same jobs every time
        with tempfile.TemporaryDirectory() as folder, RasServer(job.status) as server:
            place = Path(folder)
            (place / "kern.log").touch()
            source = {"options": {"address": [f"127.0.0.1:{server.port}"]}}
            node = Node(place, fake_nvml().build(place), kernel_log=place / "kern.log", sources={"nccl_ras": source})
            node.gpus(*node.preset("h100x8"), f"process.0 {os.getpid()} 1048576")
            node.start()
            while not (found := [f for f in node.get("/v1/findings")["findings"] if f["check"] == CHECK]):
                time.sleep(0.05)
            print(f"| {job.missing} | {found[0]['evidence']['suspects']} | {job.hung_s:.1f} |", flush=True)
            node.stop()


def main() -> None:
    """Measure what is asked for."""
    what, *rest = sys.argv[1:]
    simulated = {"moving": (measure_moving, 1000), "saves": (measure_saves, 100), "hung": (measure_hung, 60)}
    if what in simulated:
        measure, jobs = simulated[what]
        measure(int(rest[0]) if rest else jobs)
    else:
        {"cost": measure_cost, "live": measure_live}[what]()


if __name__ == "__main__":
    main()
