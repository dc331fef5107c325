"""A job under real torchrun agents on this machine, one for each pretend node, in one c10d rendezvous."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from adapter_job import SCRIPTS
from trainer_job import DEADLINE_S, TrainingJob

RENDEZVOUS = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=240"


class ElasticJob(TrainingJob):
    """As `TrainingJob`, but the ranks are started by torchrun."""

    def __init__(self, place: Path, *, steps: int, pace: float) -> None:
        super().__init__(place)
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self._steps, self._pace = steps, pace
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._endpoint = f"127.0.0.1:{probe.getsockname()[1]}"

    def join(self, node: str) -> None:
        """A node comes: its agent starts."""
        argv = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:3", "--nproc-per-node=1"]
        argv += ["--rdzv-backend=c10d", f"--rdzv-endpoint={self._endpoint}", "--rdzv-id=elastic", "--max-restarts=5"]
        argv += [f"--rdzv-conf={RENDEZVOUS}", "--local-addr=127.0.0.1", str(SCRIPTS / "plain.py"), "ddp"]
        argv += [f"--steps={self._steps}", f"--step-seconds={self._pace}"]
        argv += [f"--checkpoints={self.checkpoints}", f"--losses={self._losses}"]
        environ = {**os.environ, "HEALTHD_BEACON_DIR": str(self.beacons), "HEALTHD_JOB": "job", "HEALTHD_NODE": node}
        environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # torch 2.13: else who joins later never learns the address
        with (self.place / "log").open("ab") as log:
            self.agents[node] = subprocess.Popen(argv, env=environ, stdout=log, stderr=log)

    def left(self, node: str) -> int:
        """Wait for a node's agent to end; its exit code."""
        return self.agents[node].wait(2 * DEADLINE_S)

    def close(self) -> None:
        """End every agent; each takes its ranks along."""
        for agent in self.agents.values():
            if agent.poll() is None:
                agent.terminate()
        for agent in self.agents.values():
            try:
                agent.wait(40)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
