"""One run, inside namespaces of its own: bring up, play the plan, undo everything, settle, end, export.

`python -m tests.chaos.run_execution PLACE LIBRARY`, with PLACE/plan.json. Whether what happened was right is the checker's to say.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tests.chaos.disasters.registry import BY_NAME
from tests.chaos.plan import QUIET_S, Plan
from tests.chaos.world.cluster import Cluster
from tests.chaos.world.database import export
from tests.chaos.world.intruder import intrude
from tests.chaos.world.settlement import settle

JOB_S = 60.0

Moment = tuple[float, Callable[[], object]]


def main() -> None:
    """The whole run; `end.json` says how it went, and is the last file that is written."""
    place, library = Path(sys.argv[1]), Path(sys.argv[2])
    plan = msgspec.json.decode((place / "plan.json").read_bytes(), type=Plan)
    _own_mounts()
    cluster = Cluster(plan, place, library)
    cluster.start()
    up_s = time.monotonic()
    commands = _play(plan, cluster)
    for command in commands:
        command.wait()
    why = settle(cluster)
    job = _finish_job(cluster)
    cluster.journal.write("last", nodes=cluster.nodes(), actions=cluster.get("/v1/actions"))
    cluster.end()
    export(cluster.database, place / "store")
    used = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    end = {"unsettled": why, "job": job, "cpu_s": round(sum(each.ru_utime + each.ru_stime for each in used), 2)}
    end["played_s"] = round(time.monotonic() - up_s, 1)
    (place / "end.json").write_text(json.dumps(end))


def _own_mounts() -> None:
    """Places that belong to this run alone, and go with its mount namespace."""
    for folder in ("/run", "/dev/shm"):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    Path("/run/netns").mkdir()


def _play(plan: Plan, cluster: Cluster) -> list[subprocess.Popen[bytes]]:
    """Everything at its time."""
    commands: list[subprocess.Popen[bytes]] = []

    def say(index: int) -> None:
        command = plan.commands[index]
        words = cluster.spelt_out(command.words)
        cluster.journal.write("commands", who=command.who, words=words, node=command.node, index=index)
        commands.append(cluster.say(command.who, words))
        threading.Thread(target=_record_end, args=(cluster, index, commands[-1]), daemon=True).start()

    moments: list[Moment] = [(line.at_s, lambda line=line: cluster.kernel_says(line)) for line in plan.lines]
    moments += [(command.at_s, lambda index=index: say(index)) for index, command in enumerate(plan.commands)]
    for strike in plan.strikes:
        disaster = BY_NAME[strike.disaster]
        for at_s, name, deed in ((strike.at_s, "struck", disaster.apply), (strike.until_s, "undone", disaster.undo)):
            moments.append((at_s, lambda strike=strike, name=name, deed=deed: _strike(cluster, strike, name, deed)))
    moments.append((QUIET_S, lambda: threading.Thread(target=intrude, args=(cluster,), daemon=True).start()))
    began = time.monotonic()
    for at_s, deed in sorted(moments, key=lambda moment: moment[0]):
        time.sleep(max(0.0, began + at_s - time.monotonic()))
        deed()
    return commands


def _record_end(cluster: Cluster, index: int, command: subprocess.Popen[bytes]) -> None:
    command.wait()
    cluster.journal.write("commands_ended", index=index)


def _strike(cluster: Cluster, strike: object, event: str, deed: Callable[..., None]) -> None:
    cluster.journal.write("disasters", event=event, **msgspec.to_builtins(strike))
    deed(cluster, strike)


def _finish_job(cluster: Cluster) -> str:
    """Let the job come to its end; how it stands after that."""
    cluster.journal.write("last_step", step=cluster.job.name_last_step())
    ends = time.monotonic() + JOB_S
    while time.monotonic() < ends and not cluster.job.done and not cluster.job.waits:
        time.sleep(0.2)
    return "done" if cluster.job.done else "waits for nodes" if cluster.job.waits else "stuck"


if __name__ == "__main__":
    main()
