"""Fleets whose faults come in episodes, written without knowledge of the detector: seeds in, records and futures out.

A fault starts an episode. The node leaves, is repaired and returns; some repairs do not help, and the same fault
returns within a day or two, until a repair helps. Lemons fail by themselves whatever is repaired. Each fleet runs on
for four weeks after the record ends, to see who fails again.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from bench.lemon_fleets import BEGAN, RATE, Fleet, Rows
from remediator.detection.lemons import DAY_S, Kind

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

FORESIGHT_DAYS = 28.0
# 22 % of returned nodes fail again within a day, 42 % within 28 days, of which 6.5 faults in 1000 days explain 17 %.
UNHELPFUL, UNHELPFUL_AGAIN = 0.3, 0.15
RELAPSE_MEDIAN_D, RELAPSE_SIGMA = 0.5, 1.0
LOG_NORMAL_MEDIAN_D, LOG_NORMAL_SIGMA = 20 / 24, 2.1  # published repairs


@dataclasses.dataclass(frozen=True)
class EpisodeShape:
    """Of a fleet.

    Attributes:
        nodes, days, rate: its size, the length of its record, faults a day of a usual node.
        lemons: share of the nodes; each draws a multiplier of the rate between `times` (log-uniform).
        unhelpful, unhelpful_again: share of first and of later repairs that leave the fault in place.
        relapse_d: median days in service until a fault returns that a repair left in place (log-normal).
        repairs: "automatic" (1 to 3 h, a tenth 1 to 3 days) or "heavy" (log-normal).
        record: what the site writes: "returns" (failure, removal, return), "repairs" (failure, repair) or "bare".
    """

    nodes: int = 2000
    days: float = 28.0
    rate: float = RATE
    lemons: float = 0.0
    times: tuple[float, float] = (5.0, 220.0)
    unhelpful: float = UNHELPFUL
    unhelpful_again: float = UNHELPFUL_AGAIN
    relapse_d: float = RELAPSE_MEDIAN_D
    repairs: Literal["automatic", "heavy"] = "automatic"
    record: Literal["returns", "repairs", "bare"] = "returns"


@dataclasses.dataclass(frozen=True)
class EpisodicFleet:
    """A record with its truth, and which nodes failed in the four weeks after it."""

    fleet: Fleet
    failed_again: Flags


def draw_episodic_fleet(seed: int, shape: EpisodeShape) -> EpisodicFleet:
    """Draw one fleet."""
    rng = np.random.default_rng(seed)
    times = np.ones(shape.nodes)
    bad = rng.permutation(shape.nodes)[: round(shape.nodes * shape.lemons)]
    times[bad] = np.exp(rng.uniform(math.log(shape.times[0]), math.log(shape.times[1]), bad.size))
    as_of = BEGAN + shape.days * DAY_S
    rows, again = Rows(), np.zeros(shape.nodes, dtype=np.bool_)
    for node in range(shape.nodes):
        outages = _draw_outages(rng, shape, shape.rate * times[node])
        past = outages[outages[:, 0] <= shape.days]
        again[node] = len(past) < len(outages)
        _record_outages(rows, shape, node, BEGAN + DAY_S * past)
    return EpisodicFleet(Fleet(rows.history(shape.nodes), times > 1, as_of), again)


def _draw_outages(rng: np.random.Generator, shape: EpisodeShape, rate: float) -> Floats:
    """Return (failed, returned) in days until the end of the future."""
    found: list[tuple[float, float]] = []
    at, end = rng.exponential(1 / rate), shape.days + FORESIGHT_DAYS
    unhelpful = shape.unhelpful
    while at < end:
        back = at + _draw_repair(rng, shape)
        found.append((at, back))
        if rng.random() < unhelpful:
            at, unhelpful = back + shape.relapse_d * rng.lognormal(0.0, RELAPSE_SIGMA), shape.unhelpful_again
        else:
            at, unhelpful = back + rng.exponential(1 / rate), shape.unhelpful
    return np.array(found).reshape(-1, 2)


def _draw_repair(rng: np.random.Generator, shape: EpisodeShape) -> float:
    if shape.repairs == "heavy":
        return LOG_NORMAL_MEDIAN_D * float(rng.lognormal(0.0, LOG_NORMAL_SIGMA))
    days = rng.uniform(1.0, 3.0)
    return days if rng.random() < 0.1 else days / 24


def _record_outages(rows: Rows, shape: EpisodeShape, node: int, outages: Floats) -> None:
    """Write down outages (UTC s) as the site does; one that lasts beyond the record has no end in it."""
    as_of = BEGAN + shape.days * DAY_S
    failed, back = outages[:, 0], outages[:, 1]
    if failed.size == 0:
        return
    rows.add(Kind.FAILURE, node, failed)
    if shape.record == "returns":
        rows.add(Kind.REMOVED, node, failed + 60.0)
        rows.add(Kind.RETURNED, node, back[back <= as_of])
    elif shape.record == "repairs":
        rows.add(Kind.REPAIRED, node, failed + 60.0, end=np.where(back <= as_of, back, np.nan))
