"""A real Slurm cluster on one host: munged, slurmctld and one slurmd per simulated node, in its own directory.

Debian's slurmd takes ``-N NAME``, so that several run on one host, each on its own port. An installed Slurm is neither
read nor modified: key, socket, ports, state and logs are private.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from healthctl.process_supervision.port_allocation import find_free_ports
from healthctl.process_supervision.supervised_programs import ProgramError, SupervisedPrograms, wait_until_ready

NEEDED = ("munged", "slurmctld", "slurmd", "scontrol", "squeue", "sinfo", "sbatch", "srun", "scancel")
READY_DEADLINE_S = 120.0
COMMAND_DEADLINE_S = 30.0
SOCKET_PATH_MAX = 100  # the path of a UNIX socket holds 107 bytes
SBIN = "/usr/sbin:/sbin:/usr/local/sbin"


class ClusterShape(msgspec.Struct, frozen=True):
    """The number and properties of the simulated nodes.

    `credential_s`: a requeued job may not start before its job credential would have expired; Slurm's default of 120 s
    is reduced to the minimum it accepts. `settings` are further lines of slurm.conf.
    """

    nodes: tuple[str, ...] = ("node1", "node2", "node3", "node4", "node5")
    cpus: int = 8
    credential_s: int = 5
    settings: Mapping[str, str] = {}


def explain_missing_slurm() -> str:
    """Why a real Slurm cannot run here; empty if it can."""
    if not sys.platform.startswith("linux"):
        return "this is not Linux"
    if os.geteuid() != 0:
        return "not root (slurmd must start jobs as their users)"
    missing = [name for name in NEEDED if find_program(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (on Debian: apt-get install slurmctld slurmd slurm-client munge)"
    return ""


def find_program(program: str) -> str | None:
    """Find a program, also in the system directories that an ordinary PATH lacks."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '/usr/bin:/bin')}:{SBIN}")


class SlurmCluster:
    """The cluster. `start()` returns when every node is idle; ending `programs` ends the cluster with its jobs."""

    def __init__(self, directory: Path, programs: SupervisedPrograms, shape: ClusterShape | None = None) -> None:
        self.directory = directory
        self.shape = shape or ClusterShape()
        self.conf = directory / "slurm.conf"
        self._programs = programs
        self._munge = directory / "munge"
        if len(str(self._munge / "socket")) > SOCKET_PATH_MAX:
            raise ProgramError(f"{directory} is too long for a UNIX socket; choose a shorter working directory")

    @property
    def env(self) -> dict[str, str]:
        """The environment in which Slurm's commands use this cluster."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_", "SRUN_"))}
        return kept | {"SLURM_CONF": str(self.conf), "PATH": f"{os.environ.get('PATH', '/usr/bin:/bin')}:{SBIN}"}

    def start(self) -> None:
        """Start everything.

        Raises:
            ProgramError: a daemon exited or the nodes did not become idle in time.
        """
        self._write_files()
        env = self.env
        self._programs.start("munged", self._munged_argv(), env=env, restart=True)
        wait_until_ready(
            (self._munge / "socket").exists, READY_DEADLINE_S, f"munged; see {self._programs.log('munged')}"
        )
        self.start_controller()
        for node in self.shape.nodes:
            self._programs.start(f"slurmd-{node}", self.slurmd_argv(node), env=env, restart=True)
        wait_until_ready(
            self._all_idle, READY_DEADLINE_S, f"{len(self.shape.nodes)} idle Slurm nodes; see {self.directory}"
        )

    def slurmd_argv(self, node: str) -> list[str]:
        """The command line of a node's slurmd."""
        return [find_program("slurmd") or "slurmd", "-D", "-N", node, "-f", str(self.conf)]

    def start_controller(self) -> None:
        """Start slurmctld (again, after `stop_controller`)."""
        argv = [find_program("slurmctld") or "slurmctld", "-D", "-f", str(self.conf)]
        self._programs.start("slurmctld", argv, env=self.env, restart=True)

    def stop_controller(self) -> None:
        """Stop slurmctld, as in an outage; running jobs continue."""
        self._programs.stop("slurmctld")
        wait_until_ready(lambda: self._programs.pid("slurmctld") is None, READY_DEADLINE_S, "slurmctld to end")

    def command(self, *argv: str, check: bool = True) -> str:
        """Run a Slurm command and return its output.

        Raises:
            ProgramError: it failed or took longer than 30 s.
        """
        try:
            done = subprocess.run(
                argv, env=self.env, capture_output=True, text=True, timeout=COMMAND_DEADLINE_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise ProgramError(f"{' '.join(argv)}: no answer within {COMMAND_DEADLINE_S:g} s") from None
        if check and done.returncode:
            raise ProgramError(f"{' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def node_states(self) -> dict[str, str]:
        """Each node's state as printed by sinfo; empty while the controller does not respond."""
        lines = self.command("sinfo", "-h", "-N", "-o", "%N %T", check=False).splitlines()
        return dict(line.split(None, 1) for line in lines if " " in line.strip())

    def _all_idle(self) -> bool:
        for name in ("slurmctld", *(f"slurmd-{node}" for node in self.shape.nodes)):
            self._programs.require_running(name)
        states = self.node_states()
        return all(states.get(node) == "idle" for node in self.shape.nodes)

    def _munged_argv(self) -> list[str]:
        place = self._munge
        return [
            find_program("munged") or "munged",
            "--foreground",
            "--force",  # its directory may be below one that others can write, such as /tmp
            f"--socket={place / 'socket'}",
            f"--key-file={place / 'key'}",
            f"--pid-file={place / 'pid'}",
            f"--log-file={place / 'log'}",
            f"--seed-file={place / 'seed'}",
        ]

    def _write_files(self) -> None:
        for folder in (self.directory, self._munge, self.directory / "state", self.directory / "log"):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
        for node in self.shape.nodes:
            (self.directory / "spool" / node).mkdir(parents=True, exist_ok=True)
        key = self._munge / "key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(os.urandom(1024))
        ports = find_free_ports(len(self.shape.nodes) + 1)
        self.conf.write_text(render_slurm_conf(self.shape, self.directory, socket.gethostname().split(".")[0], ports))


def render_slurm_conf(shape: ClusterShape, directory: Path, host: str, ports: Sequence[int]) -> str:
    """The text of slurm.conf. `ports`: the controller's, then one per node."""
    munge = directory / "munge" / "socket"
    settings: Mapping[str, object] = {
        "ClusterName": "demo",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmctldPort": ports[0],
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "CredType": "cred/munge",
        "AuthInfo": f"socket={munge},cred_expire={shape.credential_s}",
        "StateSaveLocation": directory / "state",
        "SlurmdSpoolDir": directory / "spool" / "%n",
        "SlurmctldPidFile": directory / "slurmctld.pid",
        "SlurmdPidFile": directory / "slurmd-%n.pid",
        "SlurmctldLogFile": directory / "log" / "slurmctld.log",
        "SlurmdLogFile": directory / "log" / "slurmd-%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "SelectType": "select/linear",
        "MpiDefault": "none",
        "MailProg": "/bin/true",
        "SlurmdParameters": "config_overrides",
        "ReturnToService": 2,
        "SlurmctldTimeout": 30,
        "SlurmdTimeout": 60,
        "MessageTimeout": 10,
        "InactiveLimit": 0,
        "KillWait": 2,
        "WaitTime": 0,
        "JobRequeue": 1,
        "SchedulerParameters": "sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1,permit_job_expansion",
    }
    lines = [f"{key}={value}" for key, value in {**settings, **shape.settings}.items()]
    lines += [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={shape.cpus} State=UNKNOWN"
        for node, port in zip(shape.nodes, ports[1:], strict=True)
    ]
    lines.append(f"PartitionName=train Nodes={','.join(shape.nodes)} Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"
