"""What many nodes reach: a baseline by measurement and software, and a bound from it. Pure; `preflight.expectations.baseline_learning` makes it.

Every node counts by its newest passed document. The node that is judged never speaks for itself. A level moves by little at
each learning, and never far from where it began, unless a person accepts it.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from preflight.expectations.bounds import (
    SHARE_MAX,
    SourceBound,
    SourceWeight,
    build_expectation,
    compute_shortfall,
    misses_bound,
)
from preflight.expectations.machine_identity import KnownMachine, MachineRegistry
from preflight.expectations.measurement_keys import NORMAL_MAD, MeasurementKey, compute_spread, format_value
from preflight.results import Figure, Source
from vocabulary.text.plurals import format_count

NODES_MIN = 3  # besides the node that is judged
DEVICES_MIN = 4  # in a node, to show how its devices scatter
NODES_ALONE = 8  # so many need no second witness
FAIL_SHARE = 0.08
SIGMAS = 5.0
ALIKE_MIN = 3  # so many others that are as slow may be another part, and no fault
ALIKE_SHARE = 0.6  # of what fails, three sigmas at least: as slow by noise alone is one node of many hundreds
DRIFT_PER_LEARN = 0.02
DRIFT_IN_ALL = 0.10


class NodeObservation(msgspec.Struct, frozen=True):
    """What one node reached: when (UTC seconds), and each device's value, sorted."""

    at: float
    values: tuple[float, ...]


class BaselineEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement over the nodes of a product that ran the same `software`. `before` is its level at the last learning, `first` where it began; 0: none yet."""

    product: str
    test: str
    figure: str
    setting: str
    unit: str
    software: str = ""
    nodes: Mapping[str, NodeObservation]
    before: float = 0.0
    first: float = 0.0

    @property
    def key(self) -> MeasurementKey:
        """What it measures."""
        return MeasurementKey(self.product, self.test, self.figure, self.setting)


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """What is learned so far, ordered by measurement, and from which machines, by name."""

    version: int = 1
    entries: tuple[BaselineEntry, ...] = ()
    machines: Mapping[str, KnownMachine] = {}


class FleetLevel(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry says: the usual value, how devices scatter about it as a share, and from how many nodes.

    `inside` is how the devices of one node scatter about each other; None if nodes have too few to tell. `held` is what the nodes say now where that is too far from the level; else 0.
    `middles` is what each of these nodes reaches.
    """

    usual: float
    spread: float
    nodes: int
    inside: float | None = None
    held: float = 0.0
    middles: tuple[float, ...] = ()


def compute_level(entry: BaselineEntry, without: AbstractSet[str] = frozenset()) -> FleetLevel | None:
    """The level by all nodes but those `without`; None from fewer than three."""
    others = [seen.values for name, seen in entry.nodes.items() if name not in without and seen.values]
    if len(others) < NODES_MIN:
        return None
    middles = [statistics.median(values) for values in others]  # a node has one voice, however many devices
    now = usual = statistics.median(middles)
    if entry.before > 0:
        usual = clamp_to_share(usual, entry.before, DRIFT_PER_LEARN)
    if entry.first > 0:
        usual = clamp_to_share(usual, entry.first, DRIFT_IN_ALL)
    more = 1 + 1 / len(others)  # for what so few nodes don't show
    inside = _scatter_within_nodes(others, middles) * more
    return FleetLevel(
        usual=usual,
        spread=math.hypot(compute_spread(middles) * more, inside),
        nodes=len(others),
        inside=inside if max(map(len, others)) >= DEVICES_MIN else None,
        held=now if usual != now else 0.0,
        middles=tuple(middles),
    )


def _scatter_within_nodes(nodes: Sequence[Sequence[float]], middles: Sequence[float]) -> float:
    """How devices scatter about the middle of their node, as a share: all nodes' devices together, as each has only a few."""
    away = [
        abs(value / middle - 1) for node, middle in zip(nodes, middles, strict=True) for value in node if middle > 0
    ]
    count = statistics.median(map(len, nodes))
    return NORMAL_MAD * statistics.median(away) * count / max(1.0, count - 0.8) if away else 0.0


def clamp_to_share(value: float, middle: float, share: float) -> float:
    """`value`, or as near to it as `share` allows around `middle`."""
    return min(max(value, middle * (1 - share)), middle * (1 + share))


def compute_fail_share(found: FleetLevel) -> float:
    """By which share a figure may be worse than the level."""
    return min(SHARE_MAX, max(FAIL_SHARE, SIGMAS * found.spread))


def find_similar_values(found: FleetLevel, figure: Figure) -> list[float]:
    """What those of the nodes reach that are about as slow as `figure`: within the failing share of it, and slow themselves."""
    share = compute_fail_share(found)
    reached = ((middle, msgspec.structs.replace(figure, value=middle)) for middle in found.middles if middle > 0)
    return [
        middle
        for middle, theirs in reached
        if abs(compute_shortfall(figure, middle)) <= share
        and compute_shortfall(theirs, found.usual) >= ALIKE_SHARE * share
    ]


def _weigh_fleet_bound(at: FleetLevel, figure: Figure, share: float) -> tuple[SourceWeight, str]:
    """What the word of nodes with the same software is worth, and why it doesn't decide."""
    moved = build_expectation(figure, Source.FLEET, at.held, share, "") if at.held > 0 else None
    if moved and not misses_bound(figure.value, moved):
        return (
            SourceWeight.WITNESS,
            f"these nodes reach {format_value(at.held)} by now: see why, then learn with --accept",
        )
    if at.nodes < NODES_ALONE:
        return SourceWeight.WITNESS, f"{at.nodes} nodes are too few to fail by alone: learn from {NODES_ALONE}"
    if len(others := find_similar_values(at, figure)) >= ALIKE_MIN:
        middle = format_value(statistics.median(others))
        return (
            SourceWeight.WITNESS,
            f"{len(others)} of these nodes reach about {middle} too: see whether they have another part",
        )
    if at.spread * SIGMAS > SHARE_MAX:
        return SourceWeight.WITNESS, f"these nodes scatter by {at.spread:.0%}: too far to fail by alone"
    return SourceWeight.DECIDES, ""


class FleetComparison:
    """What the others say, asked for one node and what it runs."""

    def __init__(self, baseline: Baseline, node: str, software: str, devices: Iterable[str] = ()) -> None:
        """`devices` are the node's UUIDs: it may have taught under another name."""
        self._entries: dict[MeasurementKey, list[BaselineEntry]] = defaultdict(list)
        for entry in baseline.entries:
            self._entries[entry.key].append(entry)
        self._own = frozenset({node, *MachineRegistry(baseline.machines).names(devices)})
        self._software = software
        self._levels: dict[tuple[MeasurementKey, str], tuple[FleetLevel, str] | None] = {}

    def scatter(self, key: MeasurementKey, figure: Figure) -> float | None:
        """How devices of one node differ from each other, as a share; None where it isn't known."""
        found = self._level(key, figure.unit)
        return found[0].inside if found else None

    def bound(self, key: MeasurementKey, figure: Figure) -> SourceBound | None:
        """What other nodes of this product say of a figure; None for fewer than three, or another unit.

        It decides if there are eight nodes at least. Nodes that ran other software hint only. They are witnesses if they have
        moved from their level, but not so far that the figure is bad beside them; if some of them are as slow; and if they
        scatter too far.
        """
        found = self._level(key, figure.unit)
        if found is None:
            return None
        at, software = found
        share = compute_fail_share(at)
        words = f"{share:.0%} worse than the median of {format_count(at.nodes, 'other node')}, {format_value(at.usual)}"
        expectation = build_expectation(figure, Source.FLEET, at.usual, share, words)
        if expectation is None:
            return None
        word, doubt = _weigh_fleet_bound(at, figure, share)
        if software != self._software:
            word, doubt = SourceWeight.HINT, f"they ran {software or 'software they did not tell'}"
        return SourceBound(expectation=expectation, usual=at.usual, witnesses=at.nodes, word=word, doubt=doubt)

    def _level(self, key: MeasurementKey, unit: str) -> tuple[FleetLevel, str] | None:
        """The level of the nodes with our software, or of those with the software that most have; and which it is."""
        if not key.product or key not in self._entries:
            return None
        if (key, unit) not in self._levels:
            known = [
                (compute_level(entry, self._own), entry.software) for entry in self._entries[key] if entry.unit == unit
            ]
            usable = [(at, software) for at, software in known if at and at.usual > 0]
            self._levels[key, unit] = max(
                usable, key=lambda each: (each[1] == self._software, each[0].nodes, each[1]), default=None
            )
        return self._levels[key, unit]
