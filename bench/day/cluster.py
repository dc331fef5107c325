"""The cluster of one run, all of it real but the machines: Slurm, and with the system a remediator and a healthd on each node."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec

from bench.day import assumptions
from bench.day.device import Device
from bench.day.memory_copies import NodeMemory
from healthctl.api_client.remediator_client import RemediatorClient
from healthctl.demo.demo_cluster import BIN, SHARED_MEMORY, write_config
from healthctl.demo.faults import build_library
from healthctl.demo.slurm_cluster import ClusterShape, SlurmCluster
from healthctl.exit_codes import Failure
from healthctl.process_supervision.port_allocation import find_free_ports
from healthctl.process_supervision.supervised_programs import ProgramError, SupervisedPrograms, wait_until_ready
from remediator.model.views import NodeList
from remediator.store.journal import Journal

SOURCE = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
READY_DEADLINE_S = 300.0
OPERATOR = "ghd_operator"
# A node fails here about every 40 minutes, so what the defaults say of an hour, a day and 2 % of the fleet is said of this run.
BUDGET = {
    "isolated_max": 8,
    "isolations_per_hour_max": 1000,
    "isolated_fraction_per_hour_max": 30,
    "isolation_gap_s": 4,
    "open_per_rack_max": 8,
    "open_per_switch_max": 8,
    "ejects_per_job_hour_max": 100,
    "ejects_per_job_day_max": 100,
    "breaker_fraction": 0.4,
    "breaker_nodes_min": 12,
    "common_cause_usual_h": 0.7,
    "pass_hard_faults": ["rate", "gap", "job"],
}


class Work(msgspec.Struct, frozen=True):
    """One training job: on so many nodes, and with the system so many hot spares in its allocation."""

    name: str
    nodes: int
    spares: int = 0

    @property
    def least(self) -> int:
        """With the system it goes on with as few nodes."""
        return max(1, self.nodes * 3 // 4)


def work_for(nodes: int) -> list[Work]:
    """Jobs that leave about a third of the nodes free; in a cluster that is not tiny half of those are their spares."""
    large, middle = round(nodes * 0.45), round(nodes * 0.22)
    ample = int(nodes >= 24)
    works = [Work("large", large, 1 + ample), Work("middle", middle, 1)]
    return [*works, *([Work("small", 2, ample)] if nodes >= 16 else [])]


class Machines(SlurmCluster):
    """Slurm whose nodes can be off."""

    nodes_place: Path

    def slurmd_argv(self, node: str) -> list[str]:
        """It waits until the machine is on."""
        return [str(HERE / "machine.sh"), str(self.nodes_place / node), "shared", *super().slurmd_argv(node)]


class Cluster:
    """Brings everything up below `place`."""

    def __init__(self, place: Path, programs: SupervisedPrograms, nodes: int, *, with_system: bool) -> None:
        self.place, self.programs, self.with_system = place, programs, with_system
        self.nodes = tuple(f"n{number:02}" for number in range(1, nodes + 1))
        settings: dict[str, str] = {"SlurmdTimeout": f"{assumptions.SLURMD.here:g}"}
        if not with_system:
            settings |= {
                "HealthCheckProgram": str(place / "check"),
                "HealthCheckInterval": f"{assumptions.HEALTH_CHECK.here:g}",
                "HealthCheckNodeState": "ANY",
            }
        self.slurm = Machines(place / "slurm", programs, ClusterShape(nodes=self.nodes, settings=settings))
        self.slurm.nodes_place = place / "nodes"
        self.devices = {node: Device(place / "nodes" / node) for node in self.nodes}
        self.beacons = SHARED_MEMORY / f"gpu-healthd-day-{os.getpid()}-{secrets.token_hex(3)}"
        self.memory = NodeMemory(self.beacons.with_name(f"{self.beacons.name}-memory"))
        self._library = place
        self.url = f"http://127.0.0.1:{find_free_ports(1)[0]}"

    @property
    def server(self) -> RemediatorClient:
        """The remediator, as an operator."""
        return RemediatorClient(self.url, OPERATOR)

    @property
    def env(self) -> dict[str, str]:
        """For every program."""
        base = self.slurm.env
        return base | {
            "PATH": f"{BIN}:{base['PATH']}",
            "PYTHONPATH": str(SOURCE),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "HEALTHD_BEACON_DIR": str(self.beacons / "{node}"),
            "HEALTHD_SOCKET": str(self.place / "nodes" / "{node}" / "run" / "healthd.sock"),
        }

    def env_on(self, node: str) -> dict[str, str]:
        """For what belongs to a node: with its driver, and with GPUs to test."""
        kept = {name: value for name, value in self.env.items() if name != "CUDA_VISIBLE_DEVICES"}
        scenario = str(self.place / "nodes" / node / "nvml")
        library = {"FAKE_NVML_SCENARIO": scenario, "HEALTHD_NVML_LIBRARY": str(self._library)}
        return kept | library | {"HEALTHD_NODE": node}

    def start(self) -> None:
        """Returns when all nodes are idle, and with the system also healthy.

        Raises:
            ProgramError: something did not come up.
        """
        for number, (node, device) in enumerate(self.devices.items(), 1):
            device.make(node, number)
        check = self.place / "check"
        check.write_text(f"#!/bin/sh\nSLURM_CONF={self.slurm.conf} exec {HERE / 'health_check.sh'} {self.place}\n")
        check.chmod(0o755)
        self.slurm.start()
        if self.with_system:
            self._start_remediator()
            self._library = build_library(self.place)
            for node in self.nodes:
                self._start_healthd(node)
            wait_until_ready(self._all_healthy, READY_DEADLINE_S, f"healthy nodes; see {self.programs.log_dir}")

    def submit(self, work: Work) -> None:
        """Queue a job (again).

        Raises:
            ProgramError: Slurm does not take it.
        """
        name = "with" if self.with_system else "without"
        script = self.place / f"{work.name}.sh"
        train = f"{sys.executable} -m bench.day.trainer --place {self.place} --job {work.name} --nodes {work.nodes}"
        text = WITH if self.with_system else WITHOUT
        script.write_text(
            text.format(
                launch=BIN / "healthctl",
                place=self.place,
                train=train,
                work=work,
                memory=self.memory.root,
                returns=f"{assumptions.RETURN.here:g}",
                leave=f"{assumptions.LEAVE.here:g}",
            )
        )
        least, most = (work.least, work.nodes + work.spares) if self.with_system else (work.nodes, work.nodes)
        argv = ["sbatch", "--requeue", "--open-mode=append", f"--job-name={work.name}", f"--nodes={least}-{most}"]
        argv += [f"--output={self.programs.log(f'job-{work.name}-{name}')}", f"--chdir={SOURCE}", "--export=ALL"]
        argv += ["--no-kill"] if self.with_system else []
        done = subprocess.run([*argv, str(script)], env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ProgramError(f"sbatch of {work.name}: {done.stderr.strip()}")

    def power_off(self, node: str) -> None:
        """The machine is gone at once, with all that runs on it."""
        (self.place / "nodes" / node / "off").touch()
        for name in (f"healthd-{node}", f"slurmd-{node}"):
            self.programs.kill(name)
        for process in self._processes_on(node):
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        self.memory.empty(node)

    def power_on(self, node: str) -> None:
        """Under another boot."""
        self.memory.empty(node)  # once more: a rank may have written while it was killed
        self.devices[node].new_boot()
        (self.place / "nodes" / node / "off").unlink(missing_ok=True)

    def _processes_on(self, node: str) -> list[int]:
        """What Slurm has started there. The daemon of a batch script comes first: it would report that the job has ended."""
        wanted = {f"SLURM_CONF={self.slurm.conf}".encode(), f"SLURMD_NODENAME={node}".encode()}
        found: list[int] = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if wanted <= set((process / "environ").read_bytes().split(b"\0")):
                    found.append(int(process.name))
                    parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                    if b".batch]" in Path(f"/proc/{parent}/cmdline").read_bytes():
                        found.insert(0, parent)
        return found

    def _start_remediator(self) -> None:
        config = self.place / "remediator.yaml"
        database = self.place / "remediator.db"
        write_config(
            config,
            {
                "cluster": "day",
                "listen": self.url.removeprefix("http://"),
                "database": f"sqlite:///{database}",
                "mode": "act",
                "budget": BUDGET,
                "node_mtbf_h": 0.7,
                "scheduler": {"kind": "slurm", "slurm": {"conf": str(self.slurm.conf)}},
            },
        )
        Journal(f"sqlite:///{database}").prepare()
        known = [("node", node, f"ghd_{node}") for node in self.nodes] + [("operator", "person", OPERATOR)]
        with contextlib.closing(sqlite3.connect(database)) as db, db:
            db.executemany(
                "insert into tokens (digest, role, name, issued_at) values (?, ?, ?, 0)",
                [(hashlib.sha256(token.encode()).hexdigest(), role, name) for role, name, token in known],
            )
        argv = [str(BIN / "remediator"), "serve", "--config", str(config)]
        self.programs.start("remediator", argv, env=self.env, restart=True)

    def _start_healthd(self, node: str) -> None:
        place = self.place / "nodes" / node
        token = place / "token"
        token.touch(mode=0o600)
        token.write_text(f"ghd_{node}\n")
        python = sys.executable
        write_config(
            place / "healthd.yaml",
            {
                "node": node,
                "state_dir": str(place / "state"),
                "run_dir": str(place / "run"),
                "beacon_dir": str(self.beacons / node),
                "listen": "127.0.0.1:0",
                "kernel_log": {"source": "file", "path": str(place / "kernel.log"), "trust_file": True},
                "nvml": {"library": str(self._library)},
                "remediator": {"url": self.url, "token_file": str(token)},
                "orders": {
                    "reset_gpu_command": [python, "-m", "bench.day.device", str(place), "reset"],
                    "reboot_command": ["touch", str(place / "reboot")],
                    "preflight_command": [python, "-m", "bench.day.preflight_stand_in", str(self.place), node],
                },
            },
        )
        argv = [
            str(HERE / "machine.sh"),
            str(place),
            "own",
            str(BIN / "healthd"),
            "--config",
            str(place / "healthd.yaml"),
        ]
        self.programs.start(f"healthd-{node}", argv, env=self.env_on(node), restart=True)

    def _all_healthy(self) -> bool:
        for node in self.nodes:
            if self.programs.starts(f"healthd-{node}") > 1:
                raise ProgramError(f"healthd of {node} does not stay up: see {self.programs.log(f'healthd-{node}')}")
        try:
            return {n.node for n in self.server.get("/v1/nodes", NodeList).nodes if n.health == "healthy"} == set(
                self.nodes
            )
        except Failure:
            return False  # not listening yet


WITH = """\
#!/bin/sh
exec {launch} launch --nodes={work.nodes} --spares={work.spares} --swap --min-nodes={work.least} --return-seconds={returns} \\
  --leave-seconds={leave} --max-restarts=1000 --events={place}/launcher-{work.name}.jsonl -- {train} --guarded --memory {memory}
"""
WITHOUT = """\
#!/bin/sh
# What a careful user writes: three tries in this allocation, none once a node of it is drained or down; then back into the queue.
for try in 1 2 3; do
  sinfo -h -N -n "$SLURM_JOB_NODELIST" -o %T | grep -Eq 'drain|down' && break
  export HEALTHD_ATTEMPT=$((${{SLURM_RESTART_COUNT:-0}} * 3 + try)) MASTER_PORT=$((20000 + ($$ * 7 + try) % 10000))
  srun --kill-on-bad-exit=1 --wait=5 {train} && exit 0
done
scontrol requeue $SLURM_JOB_ID
sleep 60
"""
