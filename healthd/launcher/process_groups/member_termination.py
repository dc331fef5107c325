"""Ends one process of a job on this node: `python -m healthd.launcher.process_groups.member_termination NUMBER`, as a step of the same job.

Slurm signals whole steps only. The process is known by its number and by the token of its launcher's rendezvous, both in
its environment, as they are in this one's. A process that is stopped is ended, too.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from healthd.trainer.rendezvous_client import MEMBER, TOKEN


def list_member_processes(number: str, token: str) -> list[int]:
    """Ids of this node's processes that belong to member `number` of the job with this token: its children, too."""
    wanted = {f"{MEMBER}={number}".encode(), f"{TOKEN}={token}".encode()}
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if wanted <= set(entry.read_bytes().split(b"\0")):
                found.append(int(entry.parent.name))
    return found


def main() -> None:
    """Kill them."""
    for pid in list_member_processes(sys.argv[1], os.environ[TOKEN]):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
