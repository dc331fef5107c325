"""The launcher's input: the command, its shape, and its time limits."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from healthd.launcher.decisions.relaunch_policy import GateMode, RetryLimits
from healthd.launcher.scheduler_backend import Attempt
from vocabulary.daemon_socket import SOCKET


class JobDefinition(NamedTuple):
    """What to run, where, and for how long to wait.

    `least` nodes suffice if `nodes` are unavailable; None: they do not.
    """

    command: tuple[str, ...]
    nodes: int
    ranks_per_node: int = 1
    gate: GateMode = GateMode.PREFER
    limits: RetryLimits = RetryLimits()
    leave_seconds: float = 30.0  # for a rank to leave after the first of its peers has
    done_seconds: float = 3600.0  # for a rank to finish after the first of its peers has; 0: forever
    stop_seconds: float = 30.0  # for the ranks to save and leave after the launcher was stopped
    look_again_seconds: float = 15.0  # from a start to the recheck of its nodes, while no rank has trained; 0: never
    least: int | None = None
    socket_template: str = SOCKET
    per_node: bool = False  # the command starts its ranks itself, as torchrun does
    progress_file: Path | None = None
    preflight: tuple[str, ...] = ()  # the command that tests a node; empty: none
    preflight_seconds: float = 600.0
    notice_file: Path | None = None  # when it appears or changes, this machine is about to go away
    warm_spares: int = 0  # nodes on which processes wait, to take the ranks of a node that is lost
    swap: bool = False  # lost ranks are replaced in place; with `least`, the job also continues in place with fewer
    return_seconds: float = 15.0  # after the loss of a node, until ranks are started there again; 0: never
    replace_nodes: bool = True  # condemned nodes go back to the scheduler, which is asked for others
    frozen_seconds: float = 15.0  # of silence and standstill until a frozen rank is replaced; 0: never

    def attempt(self, number: int, name: str, nodes: tuple[str, ...], spares: tuple[str, ...] = ()) -> Attempt:
        """Return one start of this job."""
        patience = max(self.done_seconds, self.leave_seconds, self.stop_seconds) if self.done_seconds else 0.0
        shape = (self.ranks_per_node, self.command, self.per_node, patience)
        elastic = (self.least, self.nodes) if self.swap and self.least is not None else None
        return Attempt(number, name, nodes, *shape, self.swap, spares, elastic, self.frozen_seconds)

    @property
    def choosing(self) -> GateMode:
        """The gate mode for choosing nodes: a requested preflight counts even if the gate is off."""
        return GateMode.PREFER if self.gate is GateMode.OFF and self.preflight else self.gate
