"""The demo cluster: five simulated nodes with a healthd each, one remediator and a scheduler, all running product code.

Only the driver library and the number of machines are simulated. All files are in one directory, except the beacons,
which need a memory-backed file system.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from healthctl.api_client.remediator_client import RemediatorClient
from healthctl.demo.faults import FaultInjector, FaultLine, SimulatedDriver, build_library, find_real_driver
from healthctl.demo.simulated_gpus import SimulatedGpus
from healthctl.demo.slurm_cluster import ClusterShape, SlurmCluster
from healthctl.exit_codes import Failure
from healthctl.process_supervision.port_allocation import find_free_ports
from healthctl.process_supervision.supervised_programs import (
    ProgramError,
    SupervisedPrograms,
    read_last_line,
    wait_until_ready,
)
from remediator.model.views import NodeList
from remediator.schedulers.local_scheduler import LocalScheduler
from remediator.schedulers.scheduler_protocol import Scheduler
from remediator.schedulers.slurm.slurm_options import SlurmOptions
from remediator.schedulers.slurm.slurm_scheduler import SlurmScheduler
from vocabulary.clock import SystemClock

SOURCE = Path(__file__).resolve().parents[2]
NODES = 5
KERNEL_LOG = Path("/dev/kmsg")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - beacons are memory-backed files
READY_DEADLINE_S = 120.0
COMMAND_DEADLINE_S = 60.0
BIN = Path(sys.executable).parent


class DemoOptions(msgspec.Struct, frozen=True):
    """The demo's options. `scheduler` is slurm or local."""

    workdir: Path
    scheduler: str


def choose_node_names() -> tuple[str, ...]:
    """Choose five node names that do not appear in this machine's kernel log.

    On its first start healthd reads the log since boot, including the faults of earlier demos.
    """
    word = "".join(secrets.choice("bdfgklmnprstvz") + secrets.choice("aeiou") for _ in range(3))
    return tuple(f"{word}{number}" for number in range(1, NODES + 1))


class DemoCluster:
    """Starts the cluster under `programs`, and gives the scenario access to it."""

    def __init__(self, choices: DemoOptions, programs: SupervisedPrograms) -> None:
        self.choices = choices
        self.programs = programs
        self.workdir = choices.workdir
        self.nodes = choose_node_names()
        self.beacons = SHARED_MEMORY / f"gpu-healthd-{self.nodes[0]}"
        self.slurm = (
            SlurmCluster(self.workdir / "slurm", programs, ClusterShape(nodes=self.nodes))
            if choices.scheduler == "slurm"
            else None
        )
        self.holds_file = self.workdir / "holds.json"
        self.faults: FaultInjector = find_real_driver() or self._pretend()
        self.kernel_log = KERNEL_LOG if os.access(KERNEL_LOG, os.W_OK) else self.workdir / "kernel.log"
        self.url = f"http://127.0.0.1:{find_free_ports(1)[0]}"
        self._config = self.workdir / "remediator.yaml"

    @property
    def operator_token(self) -> Path:
        """The file with the token of an operator."""
        return self.workdir / "tokens" / "operator"

    @property
    def server(self) -> RemediatorClient:
        """The remediator's API, with an operator's token."""
        return RemediatorClient(self.url, self.operator_token.read_text().strip())

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler itself, bypassing the remediator."""
        if self.slurm:
            return SlurmScheduler(SlurmOptions(conf=str(self.slurm.conf)))
        return LocalScheduler(self.holds_file, SystemClock())

    @property
    def env(self) -> dict[str, str]:
        """The environment of all demo programs. Hides the GPUs from the trainers, which run on the CPU."""
        base = self.slurm.env if self.slurm else dict(os.environ)
        return base | {
            "PATH": f"{BIN}:{base.get('PATH', '')}",
            "PYTHONUNBUFFERED": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "HEALTHD_BEACON_DIR": str(self.beacons / "{node}"),
            "HEALTHD_SOCKET": str(self.workdir / "nodes" / "{node}" / "run" / "healthd.sock"),
        }

    def beacon_dir(self, node: str) -> Path:
        """The beacon directory of one node's ranks."""
        return self.beacons / node

    def start(self, tell: Callable[[str], None]) -> None:
        """Start everything, with progress messages; returns when all five nodes have reported themselves healthy.

        Raises:
            ProgramError: something did not come up; names its log.
        """
        if not self.kernel_log.exists():
            self.kernel_log.touch()
        if self.slurm:
            self.slurm.start()
            tell("munge, slurmctld and five slurmd are up")
        self._start_remediator()
        tell("the controller runs, and each node has its own token")
        for node in self.nodes:
            self._start_healthd(node)
        wait_until_ready(self._all_healthy, READY_DEADLINE_S, f"five healthy nodes; see {self.programs.log_dir}")

    def inject(self, node: str, line: FaultLine) -> None:
        """Inject a marked Xid line into the kernel log, with the documented command."""
        argv = [str(BIN / "healthctl"), "inject", "xid", "--node", node, "--pci", line.pci, "--code", str(line.code)]
        self.run(*argv, *(["--detail", line.detail] if line.detail else []), "--to", str(self.kernel_log))

    def run(self, *argv: str) -> str:
        """Run a command and return its output.

        Raises:
            ProgramError: the command failed; contains its error output.
        """
        try:
            done = subprocess.run(
                argv, env=self.env, capture_output=True, text=True, timeout=COMMAND_DEADLINE_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise ProgramError(f"{' '.join(argv)}: not finished within {COMMAND_DEADLINE_S:g} s") from None
        if done.returncode:
            raise ProgramError(f"{' '.join(argv)} exited with {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    def _start_remediator(self) -> None:
        scheduler: dict[str, object] = {"kind": "local", "state_file": str(self.holds_file)}
        if self.slurm:
            scheduler = {"kind": "slurm", "slurm": {"conf": str(self.slurm.conf)}}
        config = {
            "cluster": "demo",
            "listen": self.url.removeprefix("http://"),
            "database": f"sqlite:///{self.workdir / 'remediator.db'}",
            "mode": "act",
            # The second fault comes a minute after the first, and has already stopped its job.
            "budget": {"isolated_max": 2, "pass_hard_faults": ["rate", "gap", "job"]},
            "scheduler": scheduler | {"poll_s": 1.0, "poll_busy_s": 0.2},
        }
        write_config(self._config, config)
        (self.workdir / "tokens").mkdir(exist_ok=True, mode=0o700)
        for node in self.nodes:
            self._issue(node, "--node", node)
        self._issue("operator", "--operator", "demo")
        argv = [str(BIN / "remediator"), "serve", "--config", str(self._config)]
        self.programs.start("remediator", argv, env=self.env, restart=True)

    def _issue(self, file: str, *whom: str) -> None:
        path = self.workdir / "tokens" / file
        path.touch(mode=0o600)
        path.write_text(
            self.run(str(BIN / "remediator"), "token", "issue", "--config", str(self._config), *whom) + "\n"
        )

    def _pretend(self) -> SimulatedDriver:
        gpus = {
            node: SimulatedGpus(self.workdir / "nodes" / node / "nvml", node, number)
            for number, node in enumerate(self.nodes, start=1)
        }
        for each in gpus.values():
            each.all_well()
        return SimulatedDriver(gpus, build_library(self.workdir))

    def _start_healthd(self, node: str) -> None:
        place = self.workdir / "nodes" / node
        place.mkdir(parents=True, exist_ok=True)
        reset = self.faults.reset_command(node)
        config = {
            "node": node,
            "state_dir": str(place / "state"),
            "run_dir": str(place / "run"),
            "beacon_dir": str(self.beacon_dir(node)),
            "listen": "127.0.0.1:0",
            "accept_injected": True,
            "kernel_log": {"path": str(self.kernel_log)},
            "nvml": self.faults.nvml_config(),
            "remediator": {
                "url": self.url,
                "token_file": str(self.workdir / "tokens" / node),
                "report_interval_s": 2,
            },
            "orders": {"reset_gpu_command": reset} if reset else {},
        }
        write_config(place / "healthd.yaml", config)
        argv = [str(BIN / "healthd"), "--config", str(place / "healthd.yaml")]
        env = {
            key: value for key, value in self.env.items() if key != "CUDA_VISIBLE_DEVICES"
        }  # preflight tests the GPU
        self.programs.start(f"healthd-{node}", argv, env=env | self.faults.env(node), restart=True)

    def _all_healthy(self) -> bool:
        for name in ("remediator", *(f"healthd-{node}" for node in self.nodes)):
            if self.programs.starts(name) > 1:
                raise ProgramError(f"{name} keeps exiting: {read_last_line(self.programs.log(name))}")
        try:
            nodes = self.server.get("/v1/nodes", NodeList).nodes
        except Failure:
            return False  # not listening yet
        return {node.node for node in nodes if node.health == "healthy"} == set(self.nodes)


def write_config(path: Path, config: Mapping[str, object]) -> None:
    """Write JSON, which is valid YAML."""
    path.write_text(json.dumps(config, indent=2) + "\n")
