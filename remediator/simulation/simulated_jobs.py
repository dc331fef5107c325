"""Simulated jobs: they start, checkpoint, stop when a node fails, and restart when they have their nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from remediator.simulation.event_queue import EventQueue
from remediator.simulation.job_progress import JobProgress
from remediator.simulation.simulated_fleet import FleetAccount, SimulatedJob, SimulatedNode
from remediator.simulation.simulation_parameters import SimulationParameters

FOREVER_S = math.inf
NEXT_JOB_S = 60.0  # a scheduler's epilog and prolog


class SimulatedJobs:
    """All jobs of a fleet and the free nodes.

    Args:
        p: the fleet.
        agenda: the clock.
        account: what to book to.
        rng: for job lengths and restarts, one generator per slot, so that policies meet the same jobs.
    """

    def __init__(
        self, p: SimulationParameters, agenda: EventQueue, account: FleetAccount, rng: list[np.random.Generator]
    ) -> None:
        self.places: list[SimulatedJob] = []
        self.free: dict[int, SimulatedNode] = {}
        self.on_leave: Callable[[SimulatedNode], None] = lambda _: None
        self.on_join: Callable[[SimulatedNode], None] = lambda _: None
        self.on_user_fault: Callable[[SimulatedJob, SimulatedNode], None] = lambda _, __: None
        self._p, self._agenda, self._account, self._rng = p, agenda, account, rng
        self._queue: list[SimulatedJob] = []

    def fill(self, sizes: tuple[int, ...], nodes: list[SimulatedNode]) -> None:
        """Assign nodes to each slot and start the first jobs; the remaining nodes are free."""
        rest = iter(nodes)
        for number, size in enumerate(sizes):
            progress = JobProgress(self._p.checkpoint_interval_minutes * 60, self._p.checkpoint_pause_s)
            job = SimulatedJob(number, size, progress, [next(rest) for _ in range(size)])
            for node in job.nodes:
                node.job = job
            self.places.append(job)
        others = list(rest)
        self.free = {node.index: node for node in others[: self._p.spares]}
        for node in others[self._p.spares :]:
            node.reserved = True
        for job in self.places:
            self._begin(job)

    def stop(self, job: SimulatedJob) -> None:
        """Stop it without a checkpoint, to restart; one that is just starting starts again."""
        if job.phase == "running":
            job.progress.to(self._agenda.now)
            self._account.lost += job.progress.lose() * job.size
        self._restart(job)

    def save_and_leave(self, job: SimulatedJob, then: Callable[[], None]) -> None:
        """Let all ranks checkpoint and leave.

        `then` is called when they have left, or when something else stopped them.
        """
        if job.phase != "running":
            self.release(job)
            then()
            return
        self._agenda.after(self._p.checkpoint_pause_s, partial(self._saved, job, job.turn, then))

    def release(self, job: SimulatedJob) -> None:
        """Remove isolated nodes from a job that does not run."""
        for node in [node for node in job.nodes if not node.in_service]:
            self.leave(node)

    def slowed(self, job: SimulatedJob) -> None:
        """Update the speed after its slowest node has changed."""
        if job.phase == "running":
            job.progress.to(self._agenda.now)
            job.progress.speed = self._speed(job)
            self._plan_end(job)

    def give(self, node: SimulatedNode) -> None:
        """Return a node: the job that has waited longest takes it, or it is free."""
        if node.reserved:
            self.on_join(node)
            return
        self.free[node.index] = node
        for job in list(self._queue):
            self._launch(job, job.turn)

    def take(self, node: SimulatedNode) -> None:
        """Give a node no new work. An idle one leaves at once."""
        self.free.pop(node.index, None)
        if node.job is None or node.job.phase in ("idle", "waiting", "restarting"):
            self.leave(node)

    def leave(self, node: SimulatedNode) -> None:
        """No work is left on the node."""
        if node.job is not None:
            node.job.nodes.remove(node)
            node.job = None
        self.on_leave(node)

    def close(self) -> None:
        """Book what is still running."""
        for job in self.places:
            if job.phase == "running":
                job.progress.to(self._agenda.now)
            if job.phase != "idle":
                self._account.useful += job.progress.done_s * job.size
            self._book_phase(job)

    def _saved(self, job: SimulatedJob, turn: int, then: Callable[[], None]) -> None:
        if job.turn == turn and job.phase == "running":
            job.progress.to(self._agenda.now - self._p.checkpoint_pause_s)
            job.progress.save()
            self._restart(job)
        then()

    def _restart(self, job: SimulatedJob) -> None:
        """Drop isolated nodes and restart the job after its restart time."""
        if job.phase in ("running", "restarting"):
            self._account.restarts += 1
            self._phase(job, "restarting")
            job.turn += 1
            low, high = self._p.restart_min_minutes, self._p.restart_max_minutes
            share = self._rng[job.number].random()
            minutes = low * (high / low) ** share if low else high * share
            self._agenda.after(60 * minutes, partial(self._launch, job, job.turn))
        self.release(job)

    def _launch(self, job: SimulatedJob, turn: int) -> None:
        if job.turn != turn or job.phase not in ("restarting", "waiting", "idle"):
            return
        self.release(job)
        while len(job.nodes) < job.size and self.free:
            node = self.free.pop(next(iter(self.free)))
            job.nodes.append(node)
            node.job = job
            self.on_join(node)
        if len(job.nodes) < job.size:
            if job not in self._queue:
                self._queue.append(job)
            self._phase(job, "waiting")
            return
        if job in self._queue:
            self._queue.remove(job)
        if any(node.broken for node in job.nodes):
            self._phase(job, "restarting")
            self._restart(job)
            return
        self._phase(job, "running")
        job.turn += 1
        job.progress.begin(self._agenda.now, self._speed(job))
        self._plan_end(job)

    def _begin(self, job: SimulatedJob) -> None:
        rng = self._rng[job.number]
        usual = self._p.big_job_h if job.size >= 32 else self._p.small_job_h
        forever = bool(self._p.job_nodes)
        job.work_s = FOREVER_S if forever else 3600 * usual * rng.exponential()
        job.ends_by_user = not forever and rng.random() < self._p.user_fault_share
        job.work_s *= rng.random() if job.ends_by_user else 1.0
        job.runs += 1
        job.progress.done_s = job.progress.saved_s = 0.0
        self._launch(job, job.turn)

    def _plan_end(self, job: SimulatedJob) -> None:
        if job.work_s < FOREVER_S:
            job.turn += 1
            self._agenda.after(job.progress.until(job.work_s), partial(self._end, job, job.turn))

    def _end(self, job: SimulatedJob, turn: int) -> None:
        if job.turn != turn:
            return
        job.progress.to(self._agenda.now)
        self._account.useful += job.progress.done_s * job.size
        rng = self._rng[job.number]
        blamed = job.nodes[int(rng.integers(len(job.nodes)))] if job.ends_by_user else None
        self._phase(job, "idle")
        job.turn += 1
        self._agenda.after(NEXT_JOB_S, partial(self._begin, job))
        if blamed is not None:
            self.on_user_fault(job, blamed)
        self.release(job)

    def _speed(self, job: SimulatedJob) -> float:
        return 1.0 if job.speed else 1.0 - self._p.straggler_slowdown

    def _phase(self, job: SimulatedJob, phase: str) -> None:
        self._book_phase(job)
        job.phase = phase

    def _book_phase(self, job: SimulatedJob) -> None:
        spent = (self._agenda.now - job.since_s) * job.size
        if job.phase != "idle":
            self._account.wanted += spent
        if job.phase == "waiting":
            self._account.waited += spent
        job.since_s = self._agenda.now
