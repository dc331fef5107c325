"""One run: bring up, train, let a day's faults happen, stop. Leaves records below its place; judges nothing."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time
from pathlib import Path

from bench.day.cluster import Cluster, work_for
from bench.day.faults import Fault
from bench.day.records import HELD_IN_MEMORY
from bench.day.site_staff import People
from bench.day.world import World
from healthctl.process_supervision.supervised_programs import SupervisedPrograms, wait_until_ready

TICK_S, LOOK_S = 0.2, 1.0
FIRST_STEP_DEADLINE_S = 300.0


def run_day_plan(place: Path, plan: list[Fault], nodes: int, minutes: float, *, with_system: bool) -> None:
    """Play the plan.

    Raises:
        ProgramError: the cluster did not come up, or no job trained.
    """
    place.mkdir(parents=True)
    with contextlib.ExitStack() as cleanup, SupervisedPrograms(place / "log") as programs:
        cluster = Cluster(place, programs, nodes, with_system=with_system)
        for directory in (cluster.beacons, cluster.memory.root):
            cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
        _tell(place, "comes up")
        cluster.start()
        works = work_for(nodes)
        for work in works:
            cluster.submit(work)
        logs = [place / f"steps-{work.name}.jsonl" for work in works]
        wait_until_ready(
            lambda: all(log.exists() for log in logs), FIRST_STEP_DEADLINE_S, f"first steps; see {place / 'log'}"
        )
        _tell(place, f"trains on {sum(work.nodes for work in works)} of {nodes} nodes")
        world = World(cluster, plan)
        with contextlib.closing(People(cluster, world, works)) as people:
            _play(cluster, world, people, minutes * 60)
        _record_memory(cluster)
        shutil.copy(cluster.slurm.directory / "log" / "slurmctld.log", place / "slurmctld.log")
        _tell(place, "ends")


def _play(cluster: Cluster, world: World, people: People, seconds: float) -> None:
    begun, looked = time.monotonic(), 0.0
    world.note("begin", "", wall_s=seconds)
    with (cluster.place / "scheduler.jsonl").open("w") as record:
        while (passed := time.monotonic() - begun) < seconds:
            world.tick(passed)
            if passed - looked >= LOOK_S:
                looked = passed
                states, jobs = _scheduler(cluster)
                record.write(json.dumps({"at": time.time(), "nodes": states, "jobs": sorted(jobs)}) + "\n")
                people.look(states, jobs)
            time.sleep(TICK_S)
    world.note("end", "")


def _record_memory(cluster: Cluster) -> None:
    """Which step each job could go on from: only what a node holds that Slurm would use counts."""
    states, _ = _scheduler(cluster)
    usable = {node for node, (state, _) in states.items() if "drain" not in state and "down" not in state}
    (cluster.place / HELD_IN_MEMORY).write_text(json.dumps(cluster.memory.newest_steps(usable)))


def _scheduler(cluster: Cluster) -> tuple[dict[str, tuple[str, str]], set[str]]:
    """What Slurm says of each node (state, reason), and the names of its jobs."""
    said = cluster.slurm.command("sinfo", "-h", "-N", "-o", "%N|%T|%E", check=False)
    states = {}
    for line in said.splitlines():
        node, state, reason = line.split("|", 2)
        states[node] = (state, "" if reason == "none" else reason)
    return states, set(cluster.slurm.command("squeue", "-h", "-o", "%j", check=False).split())


def _tell(place: Path, what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {place.name}: {what}", file=sys.stderr, flush=True)
