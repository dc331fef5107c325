"""The ways to survive a lost rank that are compared, each with how it is started here."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.side_by_side.tiny_training import WORLD
from healthd.trainer.beacons.beacon import MailboxOrder, read_all_pages
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.mailbox import post_order

ADAPTERS = Path("build/adapters/bin/python")  # made by `make adapters`
NODES = ("n0", "n1", "n2")  # the last is the spare
Settings = dict[str, float]


@dataclass
class Job:
    """A running job in a place of its own."""

    place: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    after_freeze: Callable[[], None] = lambda: None
    copies: Path | None = None  # what it leaves outside its place

    @property
    def steps_file(self) -> Path:
        """Where its ranks record finished steps."""
        return self.place / "steps.jsonl"

    def start_process(self, argv: list[str], **environ: str) -> None:
        """Start one of its processes; all of them write into one log."""
        with (self.place / "log").open("ab") as log:
            alone = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "localhost", **environ}
            process = subprocess.Popen(argv, env={**os.environ, **alone}, stdout=log, stderr=log)
        self.processes.append(process)

    def count_ended(self) -> int:
        """Processes that have ended."""
        return sum(process.poll() is not None for process in self.processes)

    def end(self) -> None:
        """End what is left of it, frozen or not."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        if self.copies:
            shutil.rmtree(self.copies, ignore_errors=True)


@dataclass(frozen=True)
class Way:
    """One way with its settings."""

    name: str
    start: Callable[[Job, Settings], None]
    package: str = ""
    settings: Settings = field(default_factory=dict)
    limit_s: float = 45.0  # for the recovery


def start_swap(job: Job, _settings: Settings) -> None:
    """`healthctl launch --swap`: two ranks on two simulated nodes, and a spare on a third."""
    beacons, name = job.place / "beacons", f"bench-{os.getpid()}"
    beacons.mkdir()
    for node in NODES:
        prepare_directory(str(beacons / node))
    argv = [sys.executable, "-m", "healthctl.main", "launch", "--backend=local", "--gate=off", "--swap"]
    argv += [f"--nodes={WORLD}", "--spares=1", f"--node-names={','.join(NODES)}", "--", sys.executable, "-m"]
    argv += ["bench.side_by_side.swap_rank", str(job.steps_file), str(job.place / "checkpoints")]
    variables = {"HEALTHD_BEACON_DIR": f"{beacons}/{{node}}", "HEALTHD_JOB": name, "HEALTHD_COPY_STEPS": "1"}
    job.copies = Path(f"/dev/shm/gpu-healthd-copies-{os.getuid()}/{name}")
    job.start_process(argv, **variables)

    def post_abort() -> None:
        for node in NODES[:WORLD]:
            for view in read_all_pages(str(beacons / node))[0]:
                order = MailboxOrder("o0", "abort", "a benchmark", (NODES[1],), time.time() + 600)
                post_order(view.path, order)

    job.after_freeze = post_abort


def start_torchft(job: Job, settings: Settings, replicas: int) -> None:
    """A lighthouse, and replica groups of one rank."""
    port = find_free_ports(1)[0]
    needed = WORLD if replicas > WORLD else 1
    argv = [str(ADAPTERS.with_name("torchft_lighthouse")), f"--min_replicas={needed}", f"--bind=[::]:{port}"]
    for option in ("join_timeout_ms", "quorum_tick_ms", "heartbeat_timeout_ms"):
        argv += [f"--{option}={settings[option]:.0f}"]
    job.start_process(argv, RUST_LOG="warn")
    module = "bench.side_by_side.torchft_replica"
    for number in range(replicas):
        options = {name: settings[name] for name in ("collective_s", "manager_s", "heartbeat_s")}
        options |= {"number": number, "replicas": replicas, "lighthouse": f"http://localhost:{port}"}  # type: ignore[dict-item]  # JSON
        job.start_process([str(ADAPTERS), "-m", module, str(job.steps_file), json.dumps(options)])


def start_torchft_shrinking(job: Job, settings: Settings) -> None:
    """Two replicas, of which one can go on alone."""
    start_torchft(job, settings, WORLD)


def start_torchft_with_spare(job: Job, settings: Settings) -> None:
    """Three replicas, of which two contribute gradients (FIXED_WITH_SPARES)."""
    start_torchft(job, settings, WORLD + 1)


def start_nvrx(job: Job, settings: Settings) -> None:
    """Two active ranks and a reserve rank."""
    port = find_free_ports(3)[0]
    wrapper = {name: seconds for name, seconds in settings.items() if name != "collective_s"}
    options = json.dumps({"collective_s": settings["collective_s"], "wrapper": wrapper})
    argv = [str(ADAPTERS), "-m", "bench.side_by_side.nvrx_rank", str(job.steps_file), options]
    for rank in range(WORLD + 1):
        job.start_process(argv, MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(WORLD + 1))


def find_free_ports(count: int) -> list[int]:
    """So many ports in a row that nobody listens on."""
    while True:
        with socket.socket() as first:
            first.bind(("", 0))
            start = first.getsockname()[1]
        try:
            for port in range(start, start + count):
                with socket.socket() as trial:
                    trial.bind(("", port))
        except OSError:
            continue
        return list(range(start, start + count))


# torchft's README starts the lighthouse with these; the heartbeat time-out is its default. Time-outs are those of train_ddp.py.
TORCHFT_EXAMPLE = {
    "join_timeout_ms": 10_000,
    "quorum_tick_ms": 100,
    "heartbeat_timeout_ms": 5000,
    "heartbeat_s": 0.1,
    "collective_s": 5,
    "manager_s": 30,
}
# A lost heartbeat must not end a healthy replica: five are missed. A collective may last twenty steps.
TORCHFT_QUICK = {
    "join_timeout_ms": 10_000,
    "quorum_tick_ms": 10,
    "heartbeat_timeout_ms": 250,
    "heartbeat_s": 0.05,
    "collective_s": 1,
    "manager_s": 2,
}
# The wrapper's defaults; 10 s for collectives over gloo are those of NVIDIA's optimal_example.py.
NVRX_EXAMPLE: Settings = {"collective_s": 10}
NVRX_QUICK = {
    "collective_s": 1,
    "monitor_thread_interval": 0.5,  # it wakes at once; shorter only costs processor time
    "monitor_process_interval": 0.05,
    "heartbeat_interval": 0.2,
    "progress_watchdog_interval": 0.2,
    "last_call_wait": 0.0,
    "soft_timeout": 1.0,
    "hard_timeout": 1.2,
    "heartbeat_timeout": 2.0,
    "barrier_timeout": 30.0,
    "completion_timeout": 30.0,
    "termination_grace_time": 0.1,
}

TORCHFT, NVRX = "torchft-nightly", "nvidia-resiliency-ext"
WAYS = (
    Way("healthctl launch --swap", start_swap),
    Way("torchft, shrinking, quick", start_torchft_shrinking, TORCHFT, TORCHFT_QUICK),
    Way("torchft with a spare, quick", start_torchft_with_spare, TORCHFT, TORCHFT_QUICK),
    Way("NVRx in-process, quick", start_nvrx, NVRX, NVRX_QUICK),
    Way("torchft with a spare, as its example", start_torchft_with_spare, TORCHFT, TORCHFT_EXAMPLE),
    Way("NVRx in-process, defaults", start_nvrx, NVRX, NVRX_EXAMPLE, limit_s=150.0),
)
