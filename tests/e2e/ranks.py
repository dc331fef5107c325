"""A script as the ranks of one job: real processes, real gloo, a port of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEADLINE_S = 90.0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class RankProcesses:
    """The ranks of one attempt; each writes to `log-RANK` in `place`."""

    def __init__(self, place: Path, world: int, script: Path, *arguments: object) -> None:
        self._place, port = place, free_port()
        self.processes = []
        for rank in range(world):
            environ = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank)}
            environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONPATH": str(ROOT)}
            with (place / f"log-{rank}").open("ab") as log:
                argv = [sys.executable, "-W", "ignore", str(script), *map(str, arguments)]
                self.processes.append(subprocess.Popen(argv, env=environ, stdout=log, stderr=log))

    def finish(self) -> list[int]:
        """Exit codes by rank."""
        return [process.wait(DEADLINE_S) for process in self.processes]

    def kill(self) -> None:
        """SIGKILL to all of them."""
        for process in self.processes:
            process.kill()
        self.finish()

    def log(self, rank: int = 0) -> str:
        """What a rank said."""
        return (self._place / f"log-{rank}").read_text(errors="replace")
