"""A slurmctld in memory, and our backend on it."""
# ruff: noqa: ARG002 - the Slurm in memory has no use for a deadline

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from remediator.model.node_location import NodeLocation
from remediator.schedulers.slurm.controller_protocol import CommandDeadline, SlurmError
from remediator.schedulers.slurm.slurm_options import SlurmOptions
from remediator.schedulers.slurm.slurm_records import Reservation, SlurmJob, SlurmNode
from remediator.schedulers.slurm.slurm_scheduler import SlurmScheduler
from vocabulary.clock import ManualClock

if TYPE_CHECKING:
    from remediator.schedulers.slurm.controller_protocol import SlurmController


class Slurm:
    """A slurmctld in memory; `between` is what another hand does right after our change."""

    def __init__(self) -> None:
        self.table = {name: SlurmNode(name, frozenset({"IDLE"}), partitions=("train",)) for name in ("n1", "n2")}
        self.queue: list[SlurmJob] = []
        self.reserved: list[Reservation] = []
        self.away = ""
        self.asked = 0
        self.start = 0.0
        self.start_untold = ""
        self.no_batch: set[str] = set()
        self.between: Callable[[], None] = lambda: None
        self.stops_at = ""  # a host list is drained up to this node, and then refused
        self.updates: list[tuple[str, ...]] = []

    def _ask(self) -> None:
        self.asked += 1
        if self.away:
            raise SlurmError(self.away)

    def hold(self, node: str, reason: str, at: float = 0.0) -> None:
        words = frozenset({"IDLE", "DRAIN"})
        self.table[node] = replace(self.table[node], state=words, reason=reason, reason_at=at)

    def lift(self, node: str) -> None:
        self.table[node] = SlurmNode(node, frozenset({"IDLE"}))

    def nodes(self, due: CommandDeadline) -> list[SlurmNode]:
        self._ask()
        return list(self.table.values())

    def node(self, name: str, due: CommandDeadline) -> SlurmNode | None:
        self._ask()
        return self.table.get(name)

    def jobs(self, due: CommandDeadline) -> list[SlurmJob]:
        self._ask()
        return self.queue

    def began(self, due: CommandDeadline) -> float | None:
        self._ask()
        if self.start_untold:
            raise SlurmError(self.start_untold)
        return self.start

    def drain(self, node: str, reason: str, due: CommandDeadline) -> None:
        self._ask()
        self.hold(node, reason)
        self.between()

    def takes_lists(self, due: CommandDeadline) -> bool:
        return True

    def drain_list(self, nodes: Sequence[str], reason: str, due: CommandDeadline) -> None:
        self._ask()
        self.updates.append(tuple(nodes))
        for node in nodes:
            if node == self.stops_at:
                self.between()
                raise SlurmError(f"scontrol update: Invalid node state specified: {node}")
            self.hold(node, reason)
        self.between()

    def resume(self, node: str, due: CommandDeadline) -> None:
        self._ask()
        self.lift(node)
        self.between()

    def job(self, name: str, due: CommandDeadline) -> SlurmJob | None:
        return next((job for job in self.queue if job.name == name), None)

    def requeue(self, job: str, due: CommandDeadline) -> None:
        if job in self.no_batch:
            raise SlurmError("scontrol requeue: Requested operation is presently disabled")
        self._change(job, replace(self._named(job), state=frozenset({"PENDING"}), nodes=()))

    def exclude(self, job: str, nodes: tuple[str, ...], due: CommandDeadline) -> None:
        if self._named(job).state != {"PENDING"}:
            raise SlurmError("Job is no longer pending execution")
        self._change(job, replace(self._named(job), excluded=nodes))

    def _named(self, job: str) -> SlurmJob:
        return next(one for one in self.queue if one.name == job)

    def _change(self, job: str, new: SlurmJob) -> None:
        self.queue = [new if one.name == job else one for one in self.queue]

    def reservations(self, due: CommandDeadline) -> list[Reservation]:
        self._ask()
        return self.reserved

    def reserve(self, name: str, nodes: tuple[str, ...], minutes: int, user: str, due: CommandDeadline) -> None:
        self.between()
        if any(one.name == name for one in self.reserved):
            raise SlurmError("Duplicate reservation name")
        self.reserved = [*self.reserved, Reservation(name, nodes, ends_at=60.0 * minutes)]

    def release(self, name: str, due: CommandDeadline) -> None:
        self.reserved = [one for one in self.reserved if one.name != name]

    def topology(self, due: CommandDeadline) -> dict[str, NodeLocation]:
        self._ask()
        return {"n1": NodeLocation(switch="leaf1")}


def centre(slurm: Slurm, requeue_after_s: float = 0.0) -> tuple[SlurmScheduler, ManualClock]:
    clock = ManualClock()
    controller: SlurmController = slurm
    return SlurmScheduler(SlurmOptions(requeue_after_s=requeue_after_s), clock, controller), clock
