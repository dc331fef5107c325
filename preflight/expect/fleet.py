"""What many nodes reach: a baseline by measurement, and a bound from it. Pure; `preflight.expect.learning` makes it.

Every node counts by its newest passed document. The node that is judged never speaks for itself. A level moves by little at
each learning, and never far from where it began, unless a person accepts it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

import msgspec

from preflight.expect.bounds import Bound, bound
from preflight.expect.figures import Key, said, spread
from preflight.results import Figure, Source

NODES_MIN = 3  # besides the node that is judged
DEVICES_MIN = 4  # in a node, to show how its devices scatter
NODES_ALONE = 8  # so many need no second witness
FAIL_SHARE = 0.08
SIGMAS = 5.0
DRIFT_PER_LEARN = 0.02
DRIFT_IN_ALL = 0.10


class Seen(msgspec.Struct, frozen=True):
    """What one node reached: when (UTC seconds), and each device's value, sorted."""

    at: float
    values: tuple[float, ...]


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement over the nodes of a product. `before` is its level at the last learning, `first` where it began; 0: none yet."""

    product: str
    test: str
    figure: str
    setting: str
    unit: str
    nodes: Mapping[str, Seen]
    before: float = 0.0
    first: float = 0.0

    @property
    def key(self) -> Key:
        """What it measures."""
        return Key(self.product, self.test, self.figure, self.setting)


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """What is learned so far, ordered by measurement."""

    version: int = 1
    entries: tuple[Entry, ...] = ()


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry says: the usual value, how devices scatter about it as a share, and from how many nodes.

    `inside` is how the devices of one node scatter about each other; None if nodes have too few to tell. `held` is what the nodes say now where that is too far from the level; else 0.
    """

    usual: float
    spread: float
    nodes: int
    inside: float | None = None
    held: float = 0.0


def level(entry: Entry, without: str = "") -> Level | None:
    """The level by all nodes but `without`; None from fewer than three."""
    others = [seen.values for name, seen in entry.nodes.items() if name != without and seen.values]
    if len(others) < NODES_MIN:
        return None
    middles = [statistics.median(values) for values in others]  # a node has one voice, however many devices
    now = usual = statistics.median(middles)
    if entry.before > 0:
        usual = within(usual, entry.before, DRIFT_PER_LEARN)
    if entry.first > 0:
        usual = within(usual, entry.first, DRIFT_IN_ALL)
    inside = statistics.median(spread(values) for values in others)
    scatter = math.hypot(spread(middles), inside) * (1 + 1 / len(others))
    return Level(
        usual=usual,
        spread=scatter,
        nodes=len(others),
        inside=inside if max(map(len, others)) >= DEVICES_MIN else None,
        held=now if usual != now else 0.0,
    )


def within(value: float, middle: float, share: float) -> float:
    """`value`, or as near to it as `share` allows around `middle`."""
    return min(max(value, middle * (1 - share)), middle * (1 + share))


def fail_share(found: Level) -> float:
    """By which share a figure may be worse than the level."""
    return max(FAIL_SHARE, SIGMAS * found.spread)


class Fleet:
    """What the others say, asked for one node."""

    def __init__(self, baseline: Baseline, node: str) -> None:
        self._entries = {entry.key: entry for entry in baseline.entries}
        self._node = node
        self._levels: dict[Key, Level | None] = {}

    def scatter(self, key: Key, figure: Figure) -> float | None:
        """How devices of one node differ from each other, as a share; None where it isn't known."""
        found = self._level(key, figure)
        return found.inside if found else None

    def bound(self, key: Key, figure: Figure) -> Bound | None:
        """What other nodes of this product say of a figure; None for fewer than three, or another unit."""
        found = self._level(key, figure)
        if found is None:
            return None
        share = fail_share(found)
        words = f"{share:.0%} worse than the median of {found.nodes} other nodes, {said(found.usual)}"
        expectation = bound(figure, Source.FLEET, found.usual, share, words)
        return Bound(expectation=expectation, usual=found.usual, witnesses=found.nodes) if expectation else None

    def _level(self, key: Key, figure: Figure) -> Level | None:
        entry = self._entries.get(key)
        if entry is None or not key.product or entry.unit != figure.unit:
            return None
        if key not in self._levels:
            self._levels[key] = level(entry, without=self._node)
        found = self._levels[key]
        return found if found and found.usual > 0 else None
