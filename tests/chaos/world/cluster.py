"""The cluster of one run: real daemons, a real network, a real job. Handles for the disasters, and for nobody else."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

from tests.chaos.commands import INCIDENT, WHO
from tests.chaos.plan import GPUS, KernelLine, Plan
from tests.chaos.world.balancer import Balancer
from tests.chaos.world.daemon_configuration import configure_centre, configure_node
from tests.chaos.world.daemons import Daemon
from tests.chaos.world.database import Postgresql, Sqlite
from tests.chaos.world.environment import BEACONS, BIN, CENTRE_PORT, PORT, Surroundings
from tests.chaos.world.holds_watch import HoldsWatch
from tests.chaos.world.job import Job
from tests.chaos.world.journal import Journal
from tests.chaos.world.kubernetes_holds import KubernetesHolds
from tests.chaos.world.network import CENTRE, Network
from tests.chaos.world.receiver import Receiver
from tests.chaos.world.slurm_holds import SlurmHolds

START_S = 90.0
DISK_MIB = 24


class Cluster:
    """Everything of a run, below `place`."""

    def __init__(self, plan: Plan, place: Path, library: Path) -> None:
        self.plan, self.place = plan, place
        self.journal = Journal(place / "journal")
        self.here = Surroundings(plan, place, self.journal, library)
        self.network = Network(plan.world.nodes)
        self.daemons: dict[str, Daemon] = {}
        self.tokens: dict[str, str] = {}

    def start(self) -> None:
        """Bring everything up; returns when every node has reported itself."""
        self.network.build()
        (self.place / "tokens").mkdir(parents=True)
        self._small_disk(self.here.state("centre"))
        self.receiver = Receiver(self.journal)
        on_postgresql = self.plan.world.database == "postgresql"
        fails_over = any(strike.disaster == "database_failover" for strike in self.plan.strikes)
        self.database = Postgresql(self.place, standby=fails_over) if on_postgresql else Sqlite(self.place)
        self._start_centres(self._scheduler())
        self._issue_tokens()
        for node in self.plan.world.nodes:
            self._start_healthd(node)
        wanted = set(self.plan.world.nodes)
        self._until(lambda: {n["node"] for n in self.nodes() if n["health"] == "healthy"} == wanted, "healthy nodes")
        self.job = Job(self.here)
        self.daemons["job"] = self.job.daemon
        self.job.daemon.start()

    def kernel_says(self, line: KernelLine) -> None:
        """One line into a node's kernel log, written down first."""
        author = "kernel" if line.author == "kernel" else f"{line.author}[4711]"
        self.journal.write(
            "kernel", node=line.node, author=line.author, code=line.code, pci=f"0000:{0x10 + line.gpu:02x}:00.0"
        )
        stamp = time.strftime("%b %d %H:%M:%S", time.gmtime())
        with (self.here.node(line.node) / "kern.log").open("a") as log:
            log.write(f"{stamp} {line.node} {author}: {line.text}\n")

    def spelt_out(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The same with the id of an incident that is open; one that nobody knows where none is."""
        if INCIDENT not in words:
            return words
        known = (self.get("/v1/incidents?state=open") or {"incidents": []})["incidents"]
        return tuple((known[0]["id"] if known else "inc-none") if word == INCIDENT else word for word in words)

    def say(self, who: str, words: tuple[str, ...]) -> subprocess.Popen[bytes]:
        """An operator's command, begun and not waited for."""
        argv = [str(BIN / "healthctl"), *words]
        env = self.here.env() | {"HEALTHCTL_SERVER": self.here.url, "HEALTHCTL_TOKEN_FILE": str(self.here.token(who))}
        with (self.place / f"{who}.log").open("ab") as log:
            return subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def get(self, path: str) -> Any:
        """Ask the centre as its admin; None where it does not answer."""
        try:
            headers = {"Authorization": f"Bearer {self.tokens['admin']}"}
            answer = requests.get(self.here.url + path, headers=headers, timeout=10)
            return answer.json() if answer.ok else None
        except (requests.RequestException, ValueError):
            return None

    def nodes(self) -> list[dict[str, Any]]:
        """What the centre says of the nodes; nothing where it does not answer."""
        found: list[dict[str, Any]] = (self.get("/v1/nodes") or {"nodes": []})["nodes"]
        return found

    def end(self) -> None:
        """SIGTERM to all, the job first; their exit codes are written down."""
        for name in sorted(self.daemons, key=lambda name: (name != "job", not name.startswith("healthd"), name)):
            self.journal.write("ends", daemon=name, code=self.daemons[name].end())
        if self.plan.world.scheduler == "slurm":
            self.slurm.write_record()
            self.slurm.close()

    def _scheduler(self) -> dict[str, object]:
        if self.plan.world.scheduler == "kubernetes":
            self.kubernetes = KubernetesHolds(self.place, self.plan.world.nodes, self.journal)
            quick = {"deadline_s": 3.0, "stale_after_s": 3.0, "settle_s": 0.0}
            return {"kind": "kubernetes", "kubernetes": {"kubeconfig": str(self.kubernetes.kubeconfig), **quick}}
        if self.plan.world.scheduler == "slurm":
            self.slurm = SlurmHolds(self.place, self.plan.world.nodes, self.journal)
            return {"kind": "slurm", "slurm": {"conf": str(self.slurm.conf), "deadline_s": 3.0}}
        holds = self.place / "holds" / "holds.json"
        self.watch = HoldsWatch(holds, self.journal)
        return {"kind": "local", "state_file": str(holds)}

    def _start_centres(self, scheduler: dict[str, object]) -> None:
        count = self.plan.world.centres
        files = [
            configure_centre(self.here, number, self.database.url, scheduler, self.receiver.url)
            for number in range(count)
        ]
        argv = [sys.executable, "-m", "remediator", "token", "issue", "--admin", "root", "--config", str(files[0])]
        done = subprocess.run(argv, env=self.here.env(), check=True, capture_output=True, text=True)
        self.tokens["admin"] = done.stdout.strip()
        for number, file in enumerate(files):
            self._begin(f"centre-{number}", [sys.executable, "-m", "remediator", "serve", "--config", str(file)])
        self.balancer = Balancer((CENTRE, PORT), range(CENTRE_PORT, CENTRE_PORT + count))
        self._until(lambda: self.balancer.ready is not None, "no centre is ready")

    def _issue_tokens(self) -> None:
        headers = {"Authorization": f"Bearer {self.tokens['admin']}"}
        for role, name in [*(("node", node) for node in self.plan.world.nodes), *(("operator", name) for name in WHO)]:
            wish = {"role": role, "name": name}
            answer = requests.post(f"{self.here.url}/v1/tokens", json=wish, headers=headers, timeout=30)
            answer.raise_for_status()
            self.tokens[name] = answer.json()["token"]
            self.here.token(name).write_text(self.tokens[name] + "\n")

    def _start_healthd(self, node: str) -> None:
        place = self.here.node(node)
        self._small_disk(place / "state")
        for folder in (place / "run", BEACONS / node):
            folder.mkdir(parents=True)
        (place / "kern.log").touch()
        (place / "scenario").write_text(f"gpus {GPUS}\n")
        argv = [sys.executable, "-m", "healthd.main", "--config", str(configure_node(self.here, node))]
        env = {"FAKE_NVML_SCENARIO": str(place / "scenario")}
        self._begin(f"healthd-{node}", [*self.network.inside(node), *argv], env)

    def _small_disk(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)], check=True)

    def _begin(self, name: str, argv: list[str], env: dict[str, str] | None = None) -> None:
        env = self.here.env(name) | (env or {})
        self.daemons[name] = Daemon(name, argv, env, self.place / f"{name}.log", self.journal)
        self.daemons[name].start()

    def _until(self, question: Callable[[], bool], why: str) -> None:
        ends = time.monotonic() + START_S
        while not question():
            if time.monotonic() > ends:
                raise RuntimeError(f"not within {START_S:g} s: {why}; see {self.place}")
            time.sleep(0.1)
