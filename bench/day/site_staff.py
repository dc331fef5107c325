"""The people of a site, alike in both runs: they look after a while, see at once what is wrong, and repair what must be repaired.

They are generous to the run without the system: a person finds every broken node half an hour after it broke, whatever told of it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from bench.day import assumptions
from bench.day.cluster import Cluster, Work
from bench.day.world import World
from healthctl.exit_codes import Failure
from remediator.model.views import CommandText, IncidentList, NodeList, UncordonRequest
from remediator.model.views_actions import BreakerView

OURS = "gpu-healthd:"
BY_HAND = "a person: the node is bad"


class People:
    """Called every second with what the scheduler says of nodes (state, reason) and which jobs it has."""

    def __init__(self, cluster: Cluster, world: World, works: list[Work]) -> None:
        self._cluster, self._world = cluster, world
        self._works = {work.name: work for work in works}
        self._seen: dict[str, float] = {}
        self._repairing: dict[str, float] = {}
        self._proving: dict[str, subprocess.Popen[bytes] | None] = {}

    def look(self, states: Mapping[str, tuple[str, str]], jobs: set[str]) -> None:
        """One look around; a failure of a command is tried again at the next."""
        for name, work in self._works.items():
            if self._due(f"job {name}", so=name not in jobs):
                self._world.note("person queues again", "", job=name)
                self._cluster.submit(work)
        for node, (state, reason) in states.items():
            held = "drain" in state
            ours = held and reason.startswith(OURS)
            bad = node in self._world.bad
            if self._due(f"bad {node}", so=bad and not held and "down" not in state):
                self._world.note("person drains", node)
                self._scontrol(node, "state=drain", f"reason={BY_HAND}")
            at_ease = held and not ours and state in ("drained", "drained*")
            self._mend(node, f"held {node}", self._give_back, wanted=at_ease)
        if self._cluster.with_system:
            with contextlib.suppress(Failure):
                self._ask_the_centre()

    def _ask_the_centre(self) -> None:
        server = self._cluster.server
        for view in server.get("/v1/nodes", NodeList).nodes:
            self._mend(view.node, f"part {view.node}", self._boot, wanted=view.state == "replacing")
            if view.node in self._proving:
                self._prove(view.node, up=view.health in ("healthy", "degraded"))
        if self._due("breaker", so=server.get("/v1/breaker", BreakerView).open):
            self._world.note("person closes the breaker", "")
            server.post("/v1/breaker/reset", CommandText("looked at it"))
        for incident in server.get("/v1/incidents", IncidentList).incidents:
            shared = incident.closed_at is None and not incident.node
            if self._due(f"incident {incident.id}", so=shared and "breaker" not in incident.title):
                self._world.note("person resolves", "", title=incident.title)
                server.post(f"/v1/incidents/{incident.id}/resolve", CommandText("looked at it"))

    def _mend(self, node: str, what: str, back: Callable[[str], None], *, wanted: bool) -> None:
        """A person looks; what a reset or a reboot cures is back at once, a part takes its time."""
        if node in self._repairing:
            if time.monotonic() >= self._repairing[node] and wanted:
                del self._repairing[node]
                self._cluster.devices[node].cured("repair")
                self._cluster.memory.empty(node)  # it was without power
                self._world.note("person repaired", node)
                back(node)
            return
        if not self._due(what, so=wanted):
            return
        cure = self._cluster.devices[node].read().cure
        if cure == "repair":
            self._repairing[node] = time.monotonic() + assumptions.REPAIR.here
        elif cure == "reboot":
            self._repairing[node] = time.monotonic() + assumptions.REBOOT.here
        else:
            self._cluster.devices[node].cured("reset")
            self._world.note("person resets", node)
            back(node)

    def _due(self, what: str, *, so: bool) -> bool:
        """Whether it has been so for as long as people take to look; once."""
        if not so:
            self._seen.pop(what, None)
            return False
        since = self._seen.setdefault(what, time.monotonic())
        if time.monotonic() - since < assumptions.PERSON.here:
            return False
        self._seen[what] = float("inf")
        return True

    def _give_back(self, node: str) -> None:
        self._scontrol(node, "state=resume")

    def _boot(self, node: str) -> None:
        """With the part in: the machine boots, then is tested, then comes back, as the page for people on call has it."""
        self._world.reboot(node, "repair")
        self._proving[node] = None

    def _prove(self, node: str, *, up: bool) -> None:
        """A preflight that is told to the node's healthd, once that says after the boot that nothing grave is left."""
        place, process = self._cluster.place, self._proving[node]
        if process is None:
            if up and not (place / "nodes" / node / "off").exists():
                argv = [sys.executable, "-m", "bench.day.preflight_stand_in", str(place), node, "--tell"]
                argv += ["--socket", str(place / "nodes" / node / "run" / "healthd.sock")]
                with (place / "log" / f"preflight-{node}.log").open("ab") as log:
                    self._proving[node] = subprocess.Popen(argv, env=self._cluster.env_on(node), stdout=log, stderr=log)
        elif process.poll() is not None:
            del self._proving[node]
            self._world.note("person tested", node, code=process.returncode)
            if process.returncode == 0:
                self._cluster.server.post(f"/v1/nodes/{node}/uncordon", UncordonRequest("the part is in"))

    def close(self) -> None:
        """End the tests that still run."""
        for process in filter(None, self._proving.values()):
            process.terminate()
            process.wait()

    def _scontrol(self, node: str, *words: str) -> None:
        self._cluster.slurm.command("scontrol", "update", f"nodename={node}", *words, check=False)
