"""What a launcher is told: the command, its shape, and how patient to be."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from healthd.launcher.backend import Attempt
from healthd.launcher.plan import Gate, Limits
from vocabulary.daemon_socket import SOCKET


class Job(NamedTuple):
    """What to run, where, and how patiently. `least` nodes are enough when `nodes` are not there; None: they are not."""

    command: tuple[str, ...]
    nodes: int
    ranks_per_node: int = 1
    gate: Gate = Gate.PREFER
    limits: Limits = Limits()
    leave_seconds: float = 30.0  # for a rank to leave after the first of its peers has
    done_seconds: float = 3600.0  # for a rank to be done after the first of its peers is; 0: for ever
    stop_seconds: float = 30.0  # for the ranks to save and leave after the launcher was told to stop
    look_again_seconds: float = (
        15.0  # after a start, until its nodes are asked again, while no rank has trained; 0: never
    )
    least: int | None = None
    socket_template: str = SOCKET
    per_node: bool = False  # the command makes its ranks itself, as torchrun does
    progress_file: Path | None = None
    preflight: tuple[str, ...] = ()  # the command that proves a node; empty: none
    preflight_seconds: float = 600.0
    notice_file: Path | None = None  # when it appears or changes, this machine is about to go away
    warm_spares: int = 0  # nodes on which processes wait, to take the ranks of a node that is lost
    swap: bool = False  # lost ranks are replaced in place; with `least`, the job also goes on with fewer in place
    return_seconds: float = 15.0  # after the loss of a node, until ranks are started there again; 0: never

    def attempt(self, number: int, name: str, nodes: tuple[str, ...], spares: tuple[str, ...] = ()) -> Attempt:
        """One start of this job."""
        patience = max(self.done_seconds, self.leave_seconds, self.stop_seconds) if self.done_seconds else 0.0
        shape = (self.ranks_per_node, self.command, self.per_node, patience)
        elastic = (self.least, self.nodes) if self.swap and self.least is not None else None
        return Attempt(number, name, nodes, *shape, self.swap, spares, elastic)

    @property
    def choosing(self) -> Gate:
        """How to choose among the nodes: a preflight is asked for, so what it says counts even where the gate is off."""
        return Gate.PREFER if self.gate is Gate.OFF and self.preflight else self.gate
