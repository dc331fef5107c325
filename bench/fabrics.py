"""Pretended fabrics: nodes on leaves, faults of nodes, NICs, links, uplinks and leaves; what a test of two or of many would measure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from preflight.fault_localisation.localisation_records import PairExpectations, PairResult, Round, Topology, Why

RATE = 400.0


@dataclass(frozen=True)
class Plan:
    """A cluster and what is wrong with it, before the dice: counts of faults, each a factor on the rate (0: it hangs).

    `flicker` is the chance that a bad node is bad in a test; `across` the rate across leaves over that inside;
    `collisions` the share of tests across leaves that get half the rate, for everyone; `tail` the degrees of a t distribution of the noise;
    `lost` the share of results that never came.
    """

    nodes: int = 64
    per_leaf: int = 8
    bad: int = 0
    links: int = 0
    uplinks: int = 0
    leaves: int = 0
    factor: float = 0.85
    flicker: float = 1.0
    noise: float = 0.015
    across: float = 1.0
    collisions: float = 0.0
    tail: int = 0
    lost: float = 0.0
    told: bool = False  # our rule is told the rates, as the others always are
    together: bool = False  # the bad nodes stand on neighbouring places


@dataclass
class Fabric:
    """One cluster after the dice; it counts the rounds and node tests that it is asked for."""

    plan: Plan
    seed: int
    rounds_run: int = 0
    node_tests: int = 0
    topology: Topology = field(init=False)
    truth: frozenset[tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        plan = self.plan
        self._dice = np.random.default_rng(self.seed)
        names = [f"n{number:05}" for number in range(plan.nodes)]
        self.topology = Topology(tuple(names), {name: f"leaf{i // plan.per_leaf:03}" for i, name in enumerate(names)})
        leaves = sorted(set(self.topology.leaf_of.values()))
        start = int(self._dice.integers(0, plan.nodes - plan.bad + 1))
        places = (
            range(start, start + plan.bad) if plan.together else self._dice.choice(plan.nodes, plan.bad, replace=False)
        )
        self.bad = {names[place] for place in places}
        chosen = [leaves[i] for i in self._dice.choice(len(leaves), plan.uplinks + plan.leaves, replace=False)]
        self.uplinks, self.leaves = set(chosen[: plan.uplinks]), set(chosen[plan.uplinks :])
        self.links: set[tuple[str, ...]] = set()
        self.truth = frozenset({(name,) for name in (*self.bad, *self.uplinks, *self.leaves)})

    @property
    def expectations(self) -> PairExpectations:
        """What our rule is told."""
        return PairExpectations(RATE, RATE * self.plan.across) if self.plan.told else PairExpectations()

    def plant_links(self, rounds: Iterable[Round]) -> None:
        """Make links bad that these rounds test, between good nodes: another link no rule of pairs could see."""
        healthy = sorted(tuple(sorted(p)) for r in rounds for p in r if not self.bad & set(p))
        picked = self._dice.permutation(len(healthy))[: self.plan.links]
        self.links = {healthy[place] for place in picked}
        self.truth |= self.links

    def rate(self, a: str, b: str, bad: set[str]) -> float:
        """What one test of a pair measures, or NaN for a result that was lost; 0 if it hangs."""
        plan, leaf = self.plan, self.topology.leaf_of
        if plan.lost and self._dice.random() < plan.lost:
            return math.nan
        factor = (
            plan.factor
            if bad & {a, b} or self.leaves & {leaf[a], leaf[b]} or tuple(sorted((a, b))) in self.links
            else 1.0
        )
        share = 1.0
        if leaf[a] != leaf[b]:
            share = plan.across * (0.5 if self._dice.random() < plan.collisions else 1.0)
            factor = min(factor, plan.factor if self.uplinks & {leaf[a], leaf[b]} else 1.0)
        shake = self._dice.standard_t(plan.tail) if plan.tail else self._dice.standard_normal()
        return RATE * share * factor * math.exp(plan.noise * shake)

    def flickering(self) -> set[str]:
        """The bad nodes that are bad in this round."""
        return {name for name in sorted(self.bad) if self._dice.random() < self.plan.flicker}

    def run(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        """One round of pairs at once."""
        self.rounds_run += 1
        self.node_tests += 2 * len(pairs)
        bad = self.flickering()
        return {pair: self.rate(*pair, bad) for pair in pairs}

    def results(self, rounds: Iterable[Round]) -> list[PairResult]:
        """The same as results for the localiser."""
        found = []
        for pairs in rounds:
            number = self.rounds_run
            for (a, b), rate in self.run(pairs).items():
                value, why = (rate, Why.MEASURED) if rate != 0 else (None, Why.HANG)
                found.append(PairResult(number, a, b, None, value, why))
        return found

    def group(self, groups: Sequence[Sequence[str]]) -> list[float]:
        """One round of rings, all at once: each is as fast as its slowest neighbours."""
        self.rounds_run += 1
        self.node_tests += sum(len(names) for names in groups)
        bad = self.flickering()
        return [
            min(self.rate(a, b, bad) for a, b in zip(names, [*names[1:], names[0]], strict=True)) for names in groups
        ]
