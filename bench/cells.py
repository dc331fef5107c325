"""A million GPUs as ten cells: the real pipeline of each fed with a day's faults. `python -m bench.cells [--quick]`.

Simulated: the nodes, their faults (published rates, `remediator/simulate`), and a cluster that does what is asked of it (`remediator/rehearsal`).
Real and measured: state, incidents, decisions and plans of `remediator/pipeline.py` under the shipped playbooks and budgets; processor time and memory of
its process; how many time series a real healthd on the fake driver shows. Not in it: HTTP, the database, the network (`bench/fleet` measures those).
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from bench.measured_node import ROOT, Node, build_scenario
from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.isolation_budget import IsolationBudget
from remediator.model.journal_records import JobRef
from remediator.model.node_location import FILE, NodeLocation
from remediator.model.pipeline_inputs import (
    AnyInput,
    FindingsReported,
    InventoryChanged,
    PlacementChanged,
    Tick,
    TopologyObserved,
)
from remediator.model.plan_steps import Mode
from remediator.playbook.playbook_loader import SHIPPED, load_policy
from remediator.replay.simulated_cluster import AnswerScript, SimulatedCluster
from remediator.simulation.failure_causes import CAUSES, USERS, FailureCause
from remediator.simulation.simulation_parameters import SimulationParameters
from vocabulary.finding import Finding, Severity, finding_id

GPUS_PER_NODE = 8
CELLS, CELL_NODES = 10, 12_500
DAY_S = 86400.0
RACK_NODES, SWITCH_NODES = 8, 64
JOB_NODES = (*(256,) * 16, *(64,) * 100)  # of one cell; what is left over is free
PUBLISHED = SimulationParameters()
BURST_NODES, BURST_S = 1000, 60.0
LARGE_JOBS = (256, 1024, 4096, 12_500)  # nodes of one job that is told to leave
LEAVES_WITHIN_S = 600.0
TICKS_TIMED = 40
TICKS_PER_S = 4  # the engine looks at the time at least so often (`TICK_S` in remediator/engine/decision_engine.py)
EPOCH_S = 1_000_000_000.0


class Ask(msgspec.Struct, frozen=True):
    """One controller to run. `burst`: in its last minute so many nodes break at once."""

    seed: int
    nodes: int
    burst: int = 0


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller did and took. Times are processor seconds, memory is MiB resident of its process, over what an empty one takes."""

    nodes: int
    faults: int
    inputs: int
    decisions: dict[str, int]
    isolated_most: int
    learn_s: float
    day_s: float
    slowest_ms: float
    tick_ms: float
    burst_s: float
    memory_mib: float


def run_day(ask: Ask) -> Day:
    """Run it, in this process."""
    empty = _resident_mib()
    rehearsal = _begun()
    learn_s = _timed(lambda: _learn(rehearsal, ask.nodes, _job_of))
    faults = list(_faults(ask))
    slowest, isolated, began = 0.0, 0, time.process_time()
    for item in faults:
        rehearsal.run(item.at)
        before = time.process_time()
        rehearsal.submit(item)
        slowest = max(slowest, time.process_time() - before)
        isolated = max(isolated, len(rehearsal.state.held))
    rehearsal.run(EPOCH_S + DAY_S)
    day_s = time.process_time() - began
    tick_ms = 1000 * _timed(lambda: _ticks(rehearsal)) / TICKS_TIMED
    burst_s = _timed(lambda: _burst(rehearsal, ask)) if ask.burst else 0.0
    return Day(
        nodes=ask.nodes,
        faults=len(faults),
        inputs=len(faults) + 3 * ask.nodes,
        decisions=dict(Counter(str(decision.answer.value) for decision in rehearsal.decisions.values())),
        isolated_most=max(isolated, len(rehearsal.state.held)),
        learn_s=learn_s,
        day_s=day_s,
        slowest_ms=1000 * slowest,
        tick_ms=tick_ms,
        burst_s=burst_s,
        memory_mib=_resident_mib() - empty,
    )


def large_job(nodes: int) -> float:
    """Processor seconds from a lost GPU in a job on so many nodes until every one of them has answered its order and left."""
    rehearsal = _begun()
    _learn(rehearsal, nodes, lambda _: JobRef("large", 0))
    return _timed(lambda: _leave(rehearsal))


def _leave(rehearsal: SimulatedCluster) -> None:
    rehearsal.submit(_reported(_name(0), CAUSES[0], 0, rehearsal.now + 1.0))
    rehearsal.run(rehearsal.now + LEAVES_WITHIN_S)
    assert not rehearsal.state.nodes[_name(0)].jobs, "the job never left"


def _begun() -> SimulatedCluster:
    """A controller with the shipped playbooks and budgets, that may act."""
    rehearsal = SimulatedCluster(
        DecisionSettings(policy=load_policy([SHIPPED]), mode=Mode.ACT, budget=IsolationBudget()), AnswerScript()
    )
    rehearsal.now = EPOCH_S
    return rehearsal


def _learn(rehearsal: SimulatedCluster, nodes: int, job_of: Callable[[int], JobRef | None]) -> None:
    """Every node says that it is well, where it stands and what runs on it."""
    names = [_name(number) for number in range(nodes)]
    standing = {
        name: NodeLocation(rack=f"r{n // RACK_NODES}", switch=f"s{n // SWITCH_NODES}", driver="570.1", image="a")
        for n, name in enumerate(names)
    }
    rehearsal.submit(TopologyObserved(at=EPOCH_S, source=FILE, places=standing))
    for number, name in enumerate(names):
        rehearsal.submit(FindingsReported(at=EPOCH_S, node=name, boot_id="b", active=()))
        rehearsal.submit(
            InventoryChanged(at=EPOCH_S, node=name, products=("NVIDIA H100 80GB HBM3",), driver="570.1", image="a")
        )
        if (job := job_of(number)) is not None:
            rehearsal.submit(PlacementChanged(at=EPOCH_S, node=name, jobs=(job,)))


def _job_of(number: int) -> JobRef | None:
    cell, place = divmod(number, CELL_NODES)
    for job, size in enumerate(JOB_NODES):
        if place < size:
            return JobRef(f"job-{cell}-{job}", 0)
        place -= size
    return None


def _faults(ask: Ask) -> Iterator[AnyInput]:
    """A day's, in order of time: the nodes' at the published rate, and the users' own mistakes beside them."""
    dice = random.Random(ask.seed)  # noqa: S311 - the same day for the same seed
    a_day = ask.nodes / 1000 * PUBLISHED.failures_per_1000_node_days
    users = PUBLISHED.user_fault_share / (1 - PUBLISHED.user_fault_share)
    count = _poisson(dice, a_day * (1 + users))
    for number, at in enumerate(sorted(dice.uniform(0, DAY_S) for _ in range(count))):
        cause = USERS if dice.random() < users / (1 + users) else dice.choices(CAUSES, [c.weight for c in CAUSES])[0]
        if cause.seen:
            yield _reported(_name(dice.randrange(ask.nodes)), cause, number, EPOCH_S + at)


def _poisson(dice: random.Random, mean: float) -> int:
    """By waiting times, so that no other library is needed."""
    count, passed = 0, dice.expovariate(1.0)
    while passed < mean:
        count, passed = count + 1, passed + dice.expovariate(1.0)
    return count


def _reported(node: str, cause: FailureCause, number: int, at: float) -> FindingsReported:
    finding = Finding(
        id=finding_id(node, cause.check, cause.code, cause.component, str(number)),
        node=node,
        check=cause.check,
        code=cause.code,
        component=cause.component,
        severity=cause.severity,
        summary=f"{cause.check}/{cause.code}",
        first_seen=at,
        last_seen=at,
        origin=str(number),
        active=cause.severity is not Severity.INFO,
    )
    return FindingsReported(at=at, node=node, boot_id="b", changes=(finding,))


def _burst(rehearsal: SimulatedCluster, ask: Ask) -> None:
    """So many neighbours lose a GPU within a minute: a row without power, say."""
    begin = rehearsal.now + 1.0
    for number in range(ask.burst):
        rehearsal.submit(_reported(_name(number), CAUSES[0], 10**6 + number, begin + number * BURST_S / ask.burst))


def _ticks(rehearsal: SimulatedCluster) -> None:
    for _ in range(TICKS_TIMED):
        rehearsal.submit(Tick(at=rehearsal.now + 0.25))


def _name(number: int) -> str:
    return f"gpu-{number:06}"


def _timed(deed: Callable[[], object]) -> float:
    before = time.process_time()
    deed()
    return time.process_time() - before


def _resident_mib() -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def in_a_process(ask: Ask) -> Day:
    """The same, apart from everybody else."""
    command = [sys.executable, "-m", "bench.cells", "--one", msgspec.json.encode(ask).decode()]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return msgspec.json.decode(done.stdout, type=Day)


def series_of_a_node() -> int:
    """How many samples a real healthd shows of eight GPUs, on the fake driver, nothing being wrong and no job there."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-cells-") as place,
        Node(Path(place), "bench", build_scenario(8, costs=False)) as node,
    ):
        time.sleep(15)  # until each tier of readings was read once
        return sum(not line.startswith("#") for line in node.get("/metrics").splitlines())


def series_that_cross() -> int:
    """How many recorded series a cell has of itself alone, by the shipped rules."""
    rules = (ROOT / "dashboards" / "prometheus" / "recording.yaml").read_text()
    return len(re.findall(r"record: cluster:", rules))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two small cells, to see that it works")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--job", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.job:
        print(large_job(asked.job))
        return
    if asked.one:
        sys.stdout.buffer.write(msgspec.json.encode(run_day(msgspec.json.decode(asked.one, type=Ask))))
        return
    cells, nodes = (2, 1000) if asked.quick else (CELLS, CELL_NODES)
    print(f"Load average before: {os.getloadavg()[0]:.1f}\n")
    asks = [Ask(seed, nodes, BURST_NODES if seed == 1 else 0) for seed in range(1, cells + 1)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        days = list(pool.map(in_a_process, asks))
    whole = in_a_process(Ask(1, cells * nodes, BURST_NODES))
    _table(days, whole)
    _jobs(LARGE_JOBS[:1] if asked.quick else LARGE_JOBS)
    _series(cells, nodes)


def _table(days: list[Day], whole: Day) -> None:
    print(
        "| | GPUs | findings | decisions | most isolated | learn all nodes, s | the day, s | slowest input, ms | a tick, ms | burst of 1000, s | memory, MiB |"
    )
    print("|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    for number, one in enumerate(days, 1):
        _row(f"cell {number}", one)
    _row("one centre for all", whole)


def _row(name: str, one: Day) -> None:
    answers = ", ".join(f"{count} {answer}" for answer, count in sorted(one.decisions.items()))
    burst = f"{one.burst_s:.2f}" if one.burst_s else ""
    print(
        f"| {name} | {one.nodes * GPUS_PER_NODE:,} | {one.faults} | {answers} | {one.isolated_most} | {one.learn_s:.2f} | {one.day_s:.2f} "
        f"| {one.slowest_ms:.1f} | {one.tick_ms:.3f} | {burst} | {one.memory_mib:.0f} |",
        flush=True,
    )


def _jobs(sizes: Iterable[int]) -> None:
    print("\n| one job that is told to leave, nodes | orders and answers, s of processor |\n|---:|---:|")
    for nodes in sizes:
        command = [sys.executable, "-m", "bench.cells", "--job", str(nodes)]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
        print(f"| {nodes:,} | {float(done.stdout):.2f} |", flush=True)


def _series(cells: int, nodes: int) -> None:
    node, cross = series_of_a_node(), series_that_cross()
    print(f"\n| series | |\n|---|---:|\n| of a node, 8 GPUs, measured | {node} |\n| of a cell | {node * nodes:,} |")
    print(
        f"| of all cells, kept where they are | {node * nodes * cells:,} |\n| that cross, {cross} a cell by the shipped rules | {cross * cells} |"
    )


if __name__ == "__main__":
    main()
