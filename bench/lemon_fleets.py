"""Fleets with known lemons, for the benchmark of `remediator.detection.lemons` and for its tests: seeds in, histories out."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from remediator.detection.lemons import DAY_S, History, Kind

Flags = npt.NDArray[np.bool_]

BEGAN = 1_767_225_600.0
RATE = 6.5e-3  # failures a node and day
SHARE = 0.012


class Shape(NamedTuple):
    """Of a fleet: its size, how long it is watched, how often usual nodes fail, how many are lemons and how much."""

    nodes: int = 2000
    days: float = 28.0
    rate: float = RATE
    share: float = SHARE
    times: float = 30.0


class Fleet(NamedTuple):
    """A record, which nodes are lemons, and the moment it is judged at."""

    history: History
    lemon: Flags
    as_of: float


class Rows:
    """Rows of a history, one call each kind of thing."""

    COLUMNS = ("node", "time", "end", "kind", "job", "user", "code", "size", "named")
    UNKNOWN: ClassVar = {"end": np.nan, "job": -1, "user": -1, "code": -1, "size": np.nan, "named": True}

    def __init__(self) -> None:
        self._parts: dict[str, list[npt.NDArray[np.float64]]] = {name: [] for name in self.COLUMNS}

    def add(self, kind: Kind, node: object, time: object, **more: object) -> None:
        """Equally long arrays, or one value for all."""
        given = {"node": node, "time": time, **more}
        many = np.broadcast_shapes(*(np.shape(np.atleast_1d(np.asarray(value))) for value in given.values()))[0]
        for name in self.COLUMNS:
            value = float(kind) if name == "kind" else given.get(name, self.UNKNOWN.get(name))
            self._parts[name].append(np.broadcast_to(np.asarray(value, dtype=np.float64), (many,)))

    def history(self, nodes: int, **cohorts: npt.NDArray[np.int64]) -> History:
        """All of them, in the order they were added."""
        column = {name: np.concatenate(parts) if parts else np.zeros(0) for name, parts in self._parts.items()}
        whole = {name: column[name].astype(np.int64) for name in ("node", "kind", "job", "user", "code")}
        return History(
            nodes=nodes,
            node=whole["node"],
            time=column["time"],
            end=column["end"],
            kind=whole["kind"],
            job=whole["job"],
            user=whole["user"],
            code=whole["code"],
            size=column["size"],
            named=column["named"].astype(np.bool_),
            cohorts=cohorts,
        )


def lemons_of(shape: Shape, rng: np.random.Generator) -> Flags:
    """Which nodes are lemons."""
    lemon = np.zeros(shape.nodes, dtype=np.bool_)
    lemon[rng.permutation(shape.nodes)[: round(shape.nodes * shape.share)]] = True
    return lemon


def draw_failures(
    shape: Shape, rng: np.random.Generator, daily: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """(node, time) of failures at `daily` rates by node."""
    many = rng.poisson(daily * shape.days)
    node = np.repeat(np.arange(shape.nodes), many)
    return node, BEGAN + rng.random(node.size) * shape.days * DAY_S


def compute_failure_rates(shape: Shape, lemon: Flags) -> npt.NDArray[np.float64]:
    """Failures a day of each node."""
    return shape.rate * np.where(lemon, shape.times, 1.0)


def counts_only(seed: int, shape: Shape) -> Fleet:
    """Who failed when, nothing else."""
    rng = np.random.default_rng(seed)
    lemon = lemons_of(shape, rng)
    rows = Rows()
    rows.add(Kind.FAILURE, *draw_failures(shape, rng, compute_failure_rates(shape, lemon)))
    return Fleet(rows.history(shape.nodes), lemon, BEGAN + shape.days * DAY_S)


def with_evidence(seed: int, shape: Shape) -> Fleet:
    """The same failures, and what else a site writes down.

    Assumed: half of all failures leave an Xid, of 4 codes with usual nodes, of 12 with lemons; a test follows every
    second failure, fails for half of the lemons and 5 % of the others; users ask not to get the node again after 30 %
    of a lemon's failures and 5 % of a usual node's; 60 and 40 % of failures become tickets.
    """
    rng = np.random.default_rng(seed)
    lemon = lemons_of(shape, rng)
    rows = Rows()
    node, time = draw_failures(shape, rng, compute_failure_rates(shape, lemon))
    bad = lemon[node]
    many = node.size
    rows.add(Kind.FAILURE, node, time)
    for kind, share_bad, share_usual, later_s in (
        (Kind.XID, 0.5, 0.5, 0.0), (Kind.TEST_FAILED, 0.25, 0.025, 7200.0), (Kind.TICKET, 0.6, 0.4, 3600.0),
        (Kind.EXCLUDED, 0.3, 0.05, 1800.0),
    ):  # fmt: skip
        pick = rng.random(many) < np.where(bad, share_bad, share_usual)
        codes = 900 + np.where(bad, rng.integers(0, 12, many), rng.integers(0, 4, many))
        more = {"code": codes[pick]} if kind is Kind.XID else {"user": rng.integers(0, 50, many)[pick]}
        rows.add(kind, node[pick], time[pick] + later_s, **more)
    return Fleet(rows.history(shape.nodes), lemon, BEGAN + shape.days * DAY_S)


def users_bug(seed: int, shape: Shape) -> Fleet:
    """40 users; one of them crashes on his 8 nodes several times a day for a week, and 60 times anywhere in a day."""
    rng = np.random.default_rng(seed)
    lemon = lemons_of(shape, rng)
    rows = Rows()
    node, time = draw_failures(shape, rng, compute_failure_rates(shape, lemon))
    rows.add(Kind.FAILURE, node, time, user=rng.integers(0, 40, node.size), job=np.arange(node.size), size=1)
    own = rng.permutation(shape.nodes)[:8]
    rows.add(Kind.FAILURE, np.repeat(own, 20), BEGAN + (10 + 7 * rng.random(160)) * DAY_S, user=7, size=1)
    rows.add(Kind.FAILURE, rng.integers(0, shape.nodes, 60), BEGAN + (20 + rng.random(60)) * DAY_S, user=7, size=1)
    return Fleet(rows.history(shape.nodes), lemon, BEGAN + shape.days * DAY_S)


def rack_bursts(seed: int, shape: Shape) -> Fleet:
    """Racks of 16; three racks lose power three times each, and their nodes are removed and given back a day later."""
    rng = np.random.default_rng(seed)
    lemon = lemons_of(shape, rng)
    rack = np.arange(shape.nodes) // 16
    rows = Rows()
    rows.add(Kind.FAILURE, *draw_failures(shape, rng, compute_failure_rates(shape, lemon)))
    for struck in rng.permutation(int(rack.max()))[:3]:
        for at in rng.choice(np.arange(2, 26, 2), 3, replace=False):
            members = np.flatnonzero(rack == struck)
            time = BEGAN + at * DAY_S + 60 * rng.random(members.size)
            rows.add(Kind.FAILURE, members, time)
            rows.add(Kind.REMOVED, members, time + 3600 * rng.random(members.size), end=time + DAY_S)
    return Fleet(rows.history(shape.nodes, rack=rack), lemon, BEGAN + shape.days * DAY_S)


def driver_rollout(seed: int, shape: Shape, *, told: bool = True) -> Fleet:
    """From the middle on a tenth of the nodes (all, if not `told`) has a driver that fails 30 (8) times as often."""
    rng = np.random.default_rng(seed)
    lemon = lemons_of(shape, rng)
    rows = Rows()
    rows.add(Kind.FAILURE, *draw_failures(shape, rng, compute_failure_rates(shape, lemon)))
    new = rng.random(shape.nodes) < (0.1 if told else 1.0)
    half = shape._replace(days=shape.days / 2)
    node, time = draw_failures(half, rng, np.where(new, shape.rate * (29.0 if told else 7.0), 0.0))
    rows.add(Kind.FAILURE, node, time + half.days * DAY_S)
    cohorts = {"driver": new.astype(np.int64)} if told else {}
    return Fleet(rows.history(shape.nodes, **cohorts), lemon, BEGAN + shape.days * DAY_S)


def big_jobs(seed: int, shape: Shape) -> Fleet:
    """Half of the nodes run jobs of 250 that die with any of them; nobody knows of which, so all members are noted."""
    rng = np.random.default_rng(seed)
    lemon = lemons_of(shape, rng)
    rows = Rows()
    node, time = draw_failures(shape, rng, compute_failure_rates(shape, lemon))
    job = np.where(np.arange(shape.nodes) < shape.nodes // 2, np.arange(shape.nodes) // 250, -1)
    alone = job[node] < 0
    rows.add(Kind.FAILURE, node[alone], time[alone], job=10_000 + np.arange(int(alone.sum())), size=1)
    for which, at in zip(job[node[~alone]], time[~alone], strict=True):
        rows.add(Kind.FAILURE, np.flatnonzero(job == which), at, job=which, size=250)
    return Fleet(rows.history(shape.nodes), lemon, BEGAN + shape.days * DAY_S)


def uneven_service(seed: int, shape: Shape) -> Fleet:
    """A tenth of the nodes always works, the others one hour in ten; nodes fail only at work, and the record tells both."""
    rng = np.random.default_rng(seed)
    lemon = lemons_of(shape, rng)
    rows = Rows()
    busy = rng.random(shape.nodes) < 0.1
    # Per day at work six times as much, so that the fleet has as many failures as the others.
    rows.add(
        Kind.FAILURE, *draw_failures(shape, rng, 6 * compute_failure_rates(shape, lemon) * np.where(busy, 1.0, 0.1))
    )
    every = np.arange(shape.nodes)
    for day in range(int(shape.days)):
        start = BEGAN + day * DAY_S
        rows.add(Kind.IN_SERVICE, every, start, end=start + np.where(busy, DAY_S, DAY_S / 10))
    return Fleet(rows.history(shape.nodes), lemon, BEGAN + shape.days * DAY_S)


def own_cordons(seed: int, shape: Shape) -> Fleet:
    """Every failure has the node cordoned for two days and given back untouched: it cannot fail meanwhile."""
    rng = np.random.default_rng(seed)
    lemon = lemons_of(shape, rng)
    rows = Rows()
    node, time = draw_failures(shape, rng, compute_failure_rates(shape, lemon))
    back = np.full(shape.nodes, -np.inf)
    kept = np.zeros(node.size, dtype=np.bool_)
    for index in np.argsort(time):
        if time[index] >= back[node[index]]:
            kept[index], back[node[index]] = True, time[index] + 2 * DAY_S
    rows.add(Kind.FAILURE, node[kept], time[kept])
    rows.add(Kind.CORDONED, node[kept], time[kept] + 60, end=time[kept] + 2 * DAY_S)
    return Fleet(rows.history(shape.nodes), lemon, BEGAN + shape.days * DAY_S)


def with_repairs(seed: int, shape: Shape) -> Fleet:
    """Every failure is followed by a repair of a day; of lemons a repair heals 58 %, of usual nodes it spoils none."""
    rng = np.random.default_rng(seed)
    lemon = lemons_of(shape, rng)
    rows = Rows()
    for node in range(shape.nodes):
        at, bad, end = BEGAN, bool(lemon[node]), BEGAN + shape.days * DAY_S
        while True:
            at += rng.exponential(DAY_S / (shape.rate * (shape.times if bad else 1.0)))
            if at >= end:
                break
            rows.add(Kind.FAILURE, node, at)
            rows.add(Kind.REPAIRED, node, at + 600, end=at + DAY_S)
            at += DAY_S
            bad = bad and at < end and rng.random() > 0.58
        lemon[node] = bad
    return Fleet(rows.history(shape.nodes), lemon, BEGAN + shape.days * DAY_S)
