"""Faults of nodes, and what operators do about them when no policy does. Policies see only what actors receive."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import numpy as np

from remediator.simulation.event_queue import EventQueue
from remediator.simulation.failure_causes import CAUSES, SLOW, USERS, FailureCause
from remediator.simulation.fault_schedule import DAY_S, FaultSchedule, ScheduledFault
from remediator.simulation.simulated_fleet import FleetAccount, SimulatedJob, SimulatedNode
from remediator.simulation.simulated_jobs import SimulatedJobs
from remediator.simulation.simulation_parameters import SimulationParameters

HOUR_S = 3600.0
PASSES_S = 600.0  # a transient fault ends so long after its job stopped
MONTH_D = 28


class PolicyActor(Protocol):
    """A policy at work. These calls are all it learns."""

    def foresees(self, node: SimulatedNode, *, lasting: bool) -> bool:
        """Return whether it acts before an imminent fault; only an oracle may."""

    def found(self, node: SimulatedNode, cause: FailureCause) -> None:
        """A finding was seen on a node; it stands until a test disproves it."""

    def left(self, node: SimulatedNode) -> None:
        """A cordoned node has no work left."""

    def joined(self, node: SimulatedNode) -> None:
        """A free node got work."""

    def held(self, node: SimulatedNode) -> None:
        """Operators isolated a node."""

    def given_back(self, node: SimulatedNode) -> None:
        """Operators repaired a node and returned it to service."""


class SimulatedWorld:
    """One fleet under one policy, from second 0 on.

    Args:
        p: the fleet.
        fate: its fault schedule.
        rng: for what depends on the policy's own actions.
        jobs_rng: a generator for each job slot.
    """

    def __init__(
        self,
        p: SimulationParameters,
        fate: FaultSchedule,
        rng: np.random.Generator,
        jobs_rng: list[np.random.Generator],
    ) -> None:
        self.p, self.rng = p, rng
        self.agenda, self.account = EventQueue(), FleetAccount()
        self.nodes = [SimulatedNode(index, lemon=index in fate.lemons) for index in range(p.nodes)]
        self.jobs = SimulatedJobs(p, self.agenda, self.account, jobs_rng)
        self.failures: list[tuple[float, SimulatedNode, str, int, int]] = []  # at, node, job, nodes of it, user or -1
        self._fate = fate

    def begin(self, actor: PolicyActor) -> None:
        """Schedule everything that happens by itself."""
        self.actor = actor
        self.jobs.on_leave, self.jobs.on_join, self.jobs.on_user_fault = self._left, actor.joined, self._user_fault
        self.jobs.fill(self._fate.sizes, self.nodes)
        for fault in self._fate.faults:
            self.agenda.at(fault.at_s, partial(self._arrives, fault))
        for at_s, node in self._fate.slow:
            self.agenda.at(at_s, partial(self._slows, self.nodes[node]))

    def take_out(self, node: SimulatedNode, *, people: bool = False) -> None:
        """Isolate the node: no new work from now on."""
        if not node.in_service:
            return
        self._book(node)
        node.in_service, node.by_people = False, people
        if people:
            self.account.by_people += 1
        else:
            self.account.isolations += 1
            self.account.wrong += node.sound
        self.jobs.take(node)

    def bring_back(self, node: SimulatedNode) -> None:
        """Return the node to service. Remaining faults will show again."""
        self._book(node)
        node.in_service, node.by_people = True, False
        if node.job is None:
            self.jobs.give(node)
        if node.latent:
            self._fails_again(node)
        if node.slow:
            self._slow_is_seen(node)
        if node.broken:
            self._looked_for(node)

    def heal(self, node: SimulatedNode, *, lasting: bool, surely: bool = False) -> None:
        """Repair the node: a reset or restart (not `lasting`) ends transient faults.

        A repair the rest, and lemons by chance.

        The published share of nodes fails again soon after, except after what `surely` heals.
        """
        self._book(node)
        if node.broken and not lasting:
            return
        was, node.fault = node.fault, None
        if lasting:
            node.slow = node.latent = False
            if node.lemon and (surely or self.rng.random() < self.p.lemon_healed_share):
                node.lemon = False
        if was is not None and not surely:
            node.latent = self.rng.random() < self.p.refail_month_share
            if node.latent and node.in_service:
                self._fails_again(node)

    def repair(self, node: SimulatedNode, *, surely: bool = False) -> None:
        """Let operators repair the node and return it."""
        self.agenda.after(self._repair_s(), partial(self._repaired, node, surely))
        node.by_people = True

    def close(self) -> FleetAccount:
        """Book what is still running, and return the sums."""
        for node in self.nodes:
            self._book(node)
        self.jobs.close()
        return self.account

    def _repaired(self, node: SimulatedNode, surely: bool) -> None:  # noqa: FBT001 - an argument of a planned event
        self.heal(node, lasting=True, surely=surely)
        self.actor.given_back(node)
        self.bring_back(node)

    def _arrives(self, fault: ScheduledFault) -> None:
        node = self.nodes[fault.node]
        healed = fault.node in self._fate.lemons and not node.lemon
        if healed and fault.thinned > 1 / self.p.lemon_times:
            return
        self._fails(node, CAUSES[fault.cause], lasting=fault.lasting, silent=fault.silent)

    def _fails(self, node: SimulatedNode, cause: FailureCause, *, lasting: bool, silent: bool) -> None:
        if not node.in_service or node.fault is not None:
            return
        self.account.faults += 1
        node.fault, node.lasting = cause, lasting
        if self.actor.foresees(node, lasting=lasting):
            self.agenda.after(PASSES_S, partial(self._passes, node, cause))
            return
        job = node.job
        told = cause.seen and not silent
        wait_s = 0.0
        if job is not None and job.phase != "idle":
            self.failures.append((self.agenda.now, node, job.name, job.size, -1))
            warned = told and cause.leaves_time and job.phase == "running"
            wait_s = self.p.notice_minutes * 60 if warned else 0.0
            self.agenda.after(wait_s, partial(self._stops_job, node, job, job.runs))
        if lasting:
            self._looked_for(node)
        else:
            self.agenda.after(wait_s + PASSES_S, partial(self._passes, node, cause))
        if told:
            self.agenda.after(self.p.detect_s, partial(self.actor.found, node, cause))

    def _stops_job(self, node: SimulatedNode, job: SimulatedJob, runs: int) -> None:
        """Stop the job unless it has left the node meanwhile."""
        if node.job is job and job.runs == runs and job.phase in ("running", "restarting"):
            self.account.job_failures += 1
            self.jobs.stop(job)

    def _passes(self, node: SimulatedNode, cause: FailureCause) -> None:
        if node.fault is cause and not node.lasting:
            self.heal(node, lasting=False)

    def _looked_for(self, node: SimulatedNode) -> None:
        self.agenda.after(self.p.people_find_h * HOUR_S, partial(self._people_find, node, node.fault))

    def _people_find(self, node: SimulatedNode, fault: FailureCause | None) -> None:
        if node.in_service and (node.fault is fault if fault is not None else node.slow):
            self.take_out(node, people=True)
            self.actor.held(node)
            if node.job is not None:
                self.jobs.stop(node.job)
            self.repair(node)

    def _fails_again(self, node: SimulatedNode) -> None:
        """Schedule a repetition within a day, or within four weeks."""
        node.again += 1
        day, month = self.p.refail_day_share, self.p.refail_month_share
        soon = month > 0 and self.rng.random() < day / month
        after_s = DAY_S * (self.rng.random() if soon else self.rng.uniform(1, MONTH_D))
        self.agenda.after(after_s, partial(self._again, node, node.again))

    def _again(self, node: SimulatedNode, again: int) -> None:
        if node.again != again or not (node.latent and node.in_service):
            return
        node.latent = False
        weights = np.array([cause.weight for cause in CAUSES], dtype=np.float64)
        cause = CAUSES[int(self.rng.choice(len(CAUSES), p=weights / weights.sum()))]
        lasting, silent = self.rng.random() < self.p.lasting_share, self.rng.random() < self.p.silent_share
        self._fails(node, cause, lasting=lasting, silent=silent)

    def _slows(self, node: SimulatedNode) -> None:
        self._book(node)
        node.slow = True
        if node.in_service and not self.actor.foresees(node, lasting=True):
            self._slow_is_seen(node)
        if node.job is not None:
            self.jobs.slowed(node.job)

    def _slow_is_seen(self, node: SimulatedNode) -> None:
        """Report a slow node, by comparison within its job, or in the end by operators."""
        self.agenda.after(60 * self.p.detect_slow_minutes, partial(self.actor.found, node, SLOW))
        self.agenda.after(HOUR_S * self.p.people_find_slow_h, partial(self._people_find, node, None))

    def _user_fault(self, job: SimulatedJob, node: SimulatedNode) -> None:
        self.account.job_failures += 1
        self.failures.append((self.agenda.now, node, job.name, job.size, job.number))
        if node.in_service:
            self.actor.found(node, USERS)

    def _left(self, node: SimulatedNode) -> None:
        node.since_s = self.agenda.now  # it worked until here
        self.actor.left(node)

    def _repair_s(self) -> float:
        p = self.p
        if p.repair_log_normal:
            hours = p.repair_median_h * float(np.exp(self.rng.normal(0.0, p.repair_sigma)))
        elif self.rng.random() < p.repair_slow_share:
            hours = self.rng.uniform(24.0, 72.0)
        else:
            hours = self.rng.uniform(1.0, 3.0)
        return HOUR_S * min(hours, p.repair_max_h)

    def _book(self, node: SimulatedNode) -> None:
        """Book the time since the last booking in the node's state then."""
        spent, node.since_s = self.agenda.now - node.since_s, self.agenda.now
        if not node.in_service and node.job is None:
            self.account.out += spent
            if node.sound:
                self.account.healthy_out += spent
