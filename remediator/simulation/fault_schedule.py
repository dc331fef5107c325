"""The random faults of a fleet, drawn before any policy acts, so that all policies meet the same ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remediator.simulation.failure_causes import CAUSES
from remediator.simulation.simulation_parameters import SimulationParameters

DAY_S = 86400.0
SMALL_SIZES, BIG_FROM = (1, 1, 1, 2, 4, 8, 16), 32


class ScheduledFault(NamedTuple):
    """One fault. `thinned` in 0…1: a repaired lemon has only those below one over its multiplier."""

    at_s: float
    node: int
    cause: int
    lasting: bool
    silent: bool
    thinned: float


class FaultSchedule(NamedTuple):
    """Faults in order of time, lemons, slow nodes with times, and the sizes of concurrent jobs."""

    faults: tuple[ScheduledFault, ...]
    lemons: frozenset[int]
    slow: tuple[tuple[float, int], ...]
    sizes: tuple[int, ...]


def draw_fault_schedule(p: SimulationParameters, rng: np.random.Generator) -> FaultSchedule:
    """Draw a schedule. The same generator state gives the same one."""
    horizon_s = p.days * DAY_S
    lemon = np.zeros(p.nodes, dtype=np.bool_)
    lemon[rng.permutation(p.nodes)[: round(p.nodes * p.lemon_share)]] = True
    rate = p.first_rate_per_day * np.where(lemon, p.lemon_times, 1.0)
    node = np.repeat(np.arange(p.nodes), rng.poisson(rate * p.days))
    at = rng.random(node.size) * horizon_s
    weights = np.array([cause.weight for cause in CAUSES], dtype=np.float64)
    cause = rng.choice(len(CAUSES), size=node.size, p=weights / weights.sum())
    lasting = rng.random(node.size) < p.lasting_share
    silent = rng.random(node.size) < np.where(lemon[node], p.lemon_silent_share, p.silent_share)
    thinned = rng.random(node.size)
    columns = (at, node, cause, lasting, silent, thinned)
    order = np.argsort(at, kind="stable")
    faults = tuple(ScheduledFault(*row) for row in zip(*(column[order].tolist() for column in columns), strict=True))
    slow = np.flatnonzero(rng.random(p.nodes) < p.straggler_share)
    when = rng.random(slow.size) * horizon_s
    return FaultSchedule(
        faults,
        frozenset(np.flatnonzero(lemon).tolist()),
        tuple(sorted(zip(when.tolist(), slow.tolist(), strict=True))),
        p.job_nodes or _draw_job_sizes(p, rng),
    )


def _draw_job_sizes(p: SimulationParameters, rng: np.random.Generator) -> tuple[int, ...]:
    """Draw big jobs, each up to half of the fleet, until they have their share of nodes; small ones take the rest."""
    total = max(1, min(round(p.nodes * p.utilisation), p.nodes - p.spares))
    left = round(total * p.big_share)
    sizes = []
    most = max(BIG_FROM, p.nodes // 2)
    while left >= BIG_FROM:
        size = min(left, int(np.exp(rng.uniform(np.log(BIG_FROM), np.log(most + 1)))))
        sizes.append(size)
        left -= size
    left = total - sum(sizes)
    while left > 0:
        sizes.append(min(left, int(rng.choice(SMALL_SIZES))))
        left -= sizes[-1]
    return tuple(sizes)
