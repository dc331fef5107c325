"""Runs one fleet under one policy with one seed, and gives the analytical formula that the simulator must reproduce."""

from __future__ import annotations

import msgspec
import numpy as np

from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.policy import Policy
from remediator.model.plan_steps import Mode
from remediator.simulation.compared_policies import POLICIES, compared_policy
from remediator.simulation.failure_causes import FailureCause
from remediator.simulation.fault_schedule import DAY_S, draw_fault_schedule
from remediator.simulation.lemon_suspicion import LemonSuspicion
from remediator.simulation.simulated_controller import SimulatedController
from remediator.simulation.simulated_fleet import SimulatedNode
from remediator.simulation.simulated_world import SimulatedWorld
from remediator.simulation.simulation_parameters import SimulationParameters


class SimulationResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one run.

    Attributes:
        goodput: node-time of work that was not lost, as a share of the fleet's node-time.
        effective_time: the same, as a share of node-time between start and end of jobs.
        restarts_per_day: of all jobs together, forced by faults or by the policy.
        healthy_node_days_lost: time that nodes without a fault were out.
        wrong_actions: isolated nodes without any fault, not even a hidden one.
        isolations, by_people: nodes isolated by the policy, and by operators because the policy had not.
        node_faults, job_failures: their numbers.
        lost_node_days, waiting_node_days: work done twice; time in which jobs lacked nodes.
        out_node_days: nodes out of service, for whatever reason.
    """

    policy: str
    seed: int
    goodput: float
    effective_time: float
    restarts_per_day: float
    healthy_node_days_lost: float
    wrong_actions: int
    isolations: int
    by_people: int
    node_faults: int
    job_failures: int
    lost_node_days: float
    waiting_node_days: float
    out_node_days: float


def run_simulation(
    name: str, p: SimulationParameters, shipped: Policy, seed: int, rng: np.random.Generator
) -> SimulationResult:
    """Run a fleet under the policy `name` of `POLICIES`.

    Args:
        name: of the policy.
        p: the fleet.
        shipped: the rules of the policies that follow the shipped playbook.
        seed: only copied into the result.
        rng: the only source of chance; equal generators give every policy the same faults and jobs.
    """
    chance, acts, *of_jobs = rng.spawn(2 + p.nodes)
    world = SimulatedWorld(p, draw_fault_schedule(p, chance), acts, of_jobs)
    compared = POLICIES[name]
    if compared.acts:
        controller = SimulatedController(
            world,
            DecisionSettings(policy=compared_policy(name, shipped), mode=Mode.ACT, budget=p.budget),
            retest=compared.retest,
        )
        world.begin(controller)
        controller.begin()
        if compared.lemons:
            LemonSuspicion(world, controller).begin()
    else:
        world.begin(OracleActor(world) if name == "oracle" else PassiveActor())
    world.agenda.run(p.days * DAY_S)
    sums = world.close()
    return SimulationResult(
        policy=name,
        seed=seed,
        goodput=sums.useful / (p.nodes * p.days * DAY_S),
        effective_time=sums.useful / sums.wanted if sums.wanted else 1.0,
        restarts_per_day=sums.restarts / p.days,
        healthy_node_days_lost=sums.healthy_out / DAY_S,
        wrong_actions=sums.wrong,
        isolations=sums.isolations,
        by_people=sums.by_people,
        node_faults=sums.faults,
        job_failures=sums.job_failures,
        lost_node_days=sums.lost / DAY_S,
        waiting_node_days=sums.waited / DAY_S,
        out_node_days=sums.out / DAY_S,
    )


def first_order_goodput(failures_per_day: float, restart_s: float, interval_s: float, pause_s: float) -> float:
    """E = (1 − N·r·(u0 + Δ/2)) / (1 + w/Δ): first order, as if every failure were made good before the next."""
    lost = failures_per_day / DAY_S * (restart_s + interval_s / 2)
    return (1 - lost) / (1 + pause_s / interval_s)


def exact_goodput(failures_per_day: float, restart_s: float, interval_s: float, pause_s: float) -> float:
    """E for memoryless failures that also strike during restarts: e^(−λ·u0) · λΔ / (e^(λ(Δ+w)) − 1)."""
    rate = failures_per_day / DAY_S
    return float(np.exp(-rate * restart_s) * rate * interval_s / np.expm1(rate * (interval_s + pause_s)))


class PassiveActor:
    """Jobs restart where they were; operators find what stays broken."""

    def foresees(self, node: SimulatedNode, *, lasting: bool) -> bool:
        """Never."""
        del node, lasting
        return False

    def found(self, node: SimulatedNode, cause: FailureCause) -> None:
        """Ignored."""

    def left(self, node: SimulatedNode) -> None:
        """Nothing follows."""

    def joined(self, node: SimulatedNode) -> None:
        """Nothing follows."""

    def held(self, node: SimulatedNode) -> None:
        """Nothing follows."""

    def given_back(self, node: SimulatedNode) -> None:
        """Nothing follows."""


class OracleActor(PassiveActor):
    """Knows each fault just before it comes: checkpoints in time, isolates nodes that need a repair and no others."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    def foresees(self, node: SimulatedNode, *, lasting: bool) -> bool:
        """Checkpoint and restart the job; without the node if only a repair helps."""
        world, job = self._world, node.job
        if node.slow and not world.jobs.free:
            return False
        goes = lasting or node.lemon
        if goes:
            world.take_out(node)
        if job is not None and job.phase != "idle":
            world.jobs.save_and_leave(job, lambda: None)
        if goes:
            world.repair(node, surely=True)
        return True
