"""Groups of real processes on this machine, forked from one that has torch already: what is tested is the group, not Python's start."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from healthctl.process_supervision.port_allocation import find_free_ports
from preflight.group.group_command import group
from preflight.group.group_records import GroupDocument
from preflight.group.launchers.rank_placement import RankPlacement

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["preflight.group.group_session", "preflight.group.group_command", "group_processes"])
DEADLINE_S = 240.0  # starting a process with torch takes two seconds, and minutes where others want the machine


def enter(environ: dict[str, str], arguments: Sequence[str], place: str) -> None:
    """Be one node; never returns."""
    os.environ.update(environ)
    for number, name in ((1, "out"), (2, "err")):
        descriptor = os.open(f"{place}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, number)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    group.main(list(arguments), prog_name="group", standalone_mode=True)


def host_meeting(port: int, tell: Any) -> None:
    """Hold a meeting place, and do nothing more."""
    store = importlib.import_module("preflight.group.rendezvous_store")
    place = RankPlacement(launcher="", rank=0, world=2, node="a", address="127.0.0.1", port=port)
    meeting = store.RendezvousStore(place, 30, host=True)
    tell.send("up")
    threading.Event().wait()
    del meeting


class Group:
    """Nodes n0, n1, …; `absent` of them are never started. `shared` is what all find in their environment."""

    def __init__(
        self, place: Path, world: int, *arguments: str, absent: int = 0, shared: Mapping[str, str] | None = None
    ) -> None:
        self.place = place
        (self.port,) = find_free_ports(1)
        self.shared = {
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "OMP_NUM_THREADS": "1",
        } | dict(shared or {})
        self.nodes: list[Any] = []
        for rank in range(world - absent):
            self.add(rank, *arguments)

    def add(self, rank: int, *arguments: str, **environ: str) -> None:
        """One more process; it writes where its number in order of adding says."""
        environ = self.shared | {"RANK": str(rank), "HEALTHD_NODE": f"n{rank}"} | environ
        words, place = ("-o", "json", *arguments), str(self.place / f"n{len(self.nodes)}")
        self.nodes.append(FORKS.Process(target=enter, args=(environ, words, place), daemon=True))
        self.nodes[-1].start()

    def code(self, node: int) -> int | None:
        """How one node ended, waited for."""
        self.nodes[node].join(DEADLINE_S)
        code: int | None = self.nodes[node].exitcode
        return code

    def document(self) -> GroupDocument:
        """What rank 0 printed, read strictly."""
        return msgspec.json.decode((self.place / "n0.out").read_bytes(), type=GroupDocument, strict=True)

    def words(self, node: int) -> str:
        """What one node said for people."""
        return (self.place / f"n{node}.err").read_text()

    def close(self) -> None:
        """Leave nothing running."""
        for node in self.nodes:
            node.kill()
            node.join()
