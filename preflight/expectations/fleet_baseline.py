"""The fleet's baseline by measurement and software, and bounds from it. Pure; built by `preflight.expectations.baseline_learning`.

Every node counts with its newest passed document. A node is never compared with itself. A level moves little per update, and
never far from its initial value, unless an operator accepts it.
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
from preflight.expectations.measurement_keys import MeasurementKey, compute_spread, format_value
from preflight.results import Figure, Source
from vocabulary.text.plurals import format_count

NORMAL_QUARTILE = 1.1503  # of a normal distribution's distances from its middle, in standard deviations
NODES_MIN = 3  # besides the judged node
DEVICES_MIN = 4  # in a node, to estimate its spread
NODES_ALONE = 8  # this many nodes decide without a second source
FAIL_SHARE = 0.08
SIGMAS = 5.0
ALIKE_MIN = 3  # this many other slow nodes suggest another part, not a fault
ALIKE_SHARE = 0.6  # of the failing share, at least three sigmas: noise makes one node of many hundreds this slow
DRIFT_PER_LEARN = 0.02
DRIFT_IN_ALL = 0.10


class NodeObservation(msgspec.Struct, frozen=True):
    """One node's values: time (UTC seconds), and each device's value, sorted."""

    at: float
    values: tuple[float, ...]


class BaselineEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement over the nodes of a product with the same `software`. `before` is the previous level, `first` the initial one; 0: none yet."""

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
        """The measurement."""
        return MeasurementKey(self.product, self.test, self.figure, self.setting)


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The learned data, ordered by measurement, and the contributing machines by name."""

    version: int = 1
    entries: tuple[BaselineEntry, ...] = ()
    machines: Mapping[str, KnownMachine] = {}


class FleetLevel(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of an entry: the usual value, the devices' spread as a share, and the number of nodes.

    `inside` is the spread within one node; None with too few devices. `held` is the nodes' current value if it is too far from
    the level; else 0. `middles` is each node's median.
    """

    usual: float
    spread: float
    nodes: int
    inside: float | None = None
    held: float = 0.0
    middles: tuple[float, ...] = ()


def compute_level(entry: BaselineEntry, without: AbstractSet[str] = frozenset()) -> FleetLevel | None:
    """The level from all nodes except `without`; None from fewer than three."""
    others = [seen.values for name, seen in entry.nodes.items() if name not in without and seen.values]
    if len(others) < NODES_MIN:
        return None
    middles = [statistics.median(values) for values in others]  # a node counts once, however many devices it has
    now = usual = statistics.median(middles)
    if entry.before > 0:
        usual = clamp_to_share(usual, entry.before, DRIFT_PER_LEARN)
    if entry.first > 0:
        usual = clamp_to_share(usual, entry.first, DRIFT_IN_ALL)
    inside = _scatter_within_nodes(others, middles) * _allow_for_few(sum(map(len, others)))
    return FleetLevel(
        usual=usual,
        spread=math.hypot(compute_spread(middles) * _allow_for_few(len(others)), inside),
        nodes=len(others),
        inside=inside if max(map(len, others)) >= DEVICES_MIN else None,
        held=now if usual != now else 0.0,
        middles=tuple(middles),
    )


def _scatter_within_nodes(nodes: Sequence[Sequence[float]], middles: Sequence[float]) -> float:
    """The spread of devices around their node's median, as a share, over all nodes, as each has only a few.

    By the upper quartile of the distances, which estimates better than their median and forgives a quarter of slow devices.
    """
    away = sorted(
        abs(value / middle - 1) for node, middle in zip(nodes, middles, strict=True) for value in node if middle > 0
    )
    count = statistics.median(map(len, nodes))
    return away[3 * len(away) // 4] / NORMAL_QUARTILE * count / max(1.0, count - 0.8) if away else 0.0


def _allow_for_few(count: int) -> float:
    """The factor on a spread estimated from `count` values: more than one of its own standard deviations.

    A run has hundreds of figures, and the one whose scatter was underestimated most would fail a healthy device.
    """
    return 1 + 1.5 / math.sqrt(count)


def clamp_to_share(value: float, middle: float, share: float) -> float:
    """`value`, limited to `share` around `middle`."""
    return min(max(value, middle * (1 - share)), middle * (1 + share))


def compute_fail_share(found: FleetLevel) -> float:
    """The share by which a figure may be worse than the level."""
    return min(SHARE_MAX, max(FAIL_SHARE, SIGMAS * found.spread))


def find_similar_values(found: FleetLevel, figure: Figure) -> list[float]:
    """The values of nodes about as slow as `figure`: within the failing share of it, and slow themselves."""
    share = compute_fail_share(found)
    reached = ((middle, msgspec.structs.replace(figure, value=middle)) for middle in found.middles if middle > 0)
    return [
        middle
        for middle, theirs in reached
        if abs(compute_shortfall(figure, middle)) <= share
        and compute_shortfall(theirs, found.usual) >= ALIKE_SHARE * share
    ]


def _weigh_fleet_bound(at: FleetLevel, figure: Figure, share: float) -> tuple[SourceWeight, str]:
    """The weight of nodes with the same software, and why they do not decide."""
    moved = build_expectation(figure, Source.FLEET, at.held, share, "") if at.held > 0 else None
    if moved and not misses_bound(figure.value, moved):
        return (
            SourceWeight.WITNESS,
            f"these nodes now reach {format_value(at.held)}: find out why, then learn with --accept",
        )
    if at.nodes < NODES_ALONE:
        return (
            SourceWeight.WITNESS,
            f"{at.nodes} nodes are too few for a verdict by this bound alone: learn from {NODES_ALONE}",
        )
    if len(others := find_similar_values(at, figure)) >= ALIKE_MIN:
        middle = format_value(statistics.median(others))
        return (
            SourceWeight.WITNESS,
            f"{len(others)} of these nodes also reach about {middle}: check whether they have a different part",
        )
    if at.spread * SIGMAS > SHARE_MAX:
        return (
            SourceWeight.WITNESS,
            f"these nodes scatter by {at.spread:.0%}: too much for a verdict by this bound alone",
        )
    return SourceWeight.DECIDES, ""


class FleetComparison:
    """Comparison with the other nodes, for one node and its software."""

    def __init__(self, baseline: Baseline, node: str, software: str, devices: Iterable[str] = ()) -> None:
        """`devices` are the node's UUIDs: its data may be stored under another name."""
        self._entries: dict[MeasurementKey, list[BaselineEntry]] = defaultdict(list)
        for entry in baseline.entries:
            self._entries[entry.key].append(entry)
        self._own = frozenset({node, *MachineRegistry(baseline.machines).names(devices)})
        self._software = software
        self._levels: dict[tuple[MeasurementKey, str], tuple[FleetLevel, str] | None] = {}

    def has_measured(self, product: str) -> bool:
        """Whether three other nodes of this product, with the same software, have measured any figure."""
        return any(
            compute_level(entry, self._own) is not None
            for entries in self._entries.values()
            for entry in entries
            if entry.product == product and entry.software == self._software
        )

    def scatter(self, key: MeasurementKey, figure: Figure) -> float | None:
        """The spread within a node, as a share; None if unknown."""
        found = self._level(key, figure.unit)
        return found[0].inside if found else None

    def bound(self, key: MeasurementKey, figure: Figure) -> SourceBound | None:
        """The bound from other nodes of this product; None for fewer than three, or another unit.

        It decides with at least eight nodes. Nodes with other software are only hints. Nodes are witnesses if their level has moved,
        if some are as slow, or if their spread is too large.
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
            word, doubt = SourceWeight.HINT, f"they ran {software or 'unknown software'}"
        return SourceBound(expectation=expectation, usual=at.usual, witnesses=at.nodes, word=word, doubt=doubt)

    def _level(self, key: MeasurementKey, unit: str) -> tuple[FleetLevel, str] | None:
        """The level of nodes with the same software, else of the most common software; and which it is."""
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
