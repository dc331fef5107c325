"""The whole fleet as one picture: which node stands where, and in which state. Pure; compact, for fleets of 12 500 nodes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

import msgspec

from remediator.model.journal_records import NodeRecord
from remediator.model.node_location import KINDS
from remediator.model.rule_conditions import NodeState
from vocabulary.health import Health

STATES = tuple(state.value for state in NodeState)
HEALTHS = (Health.HEALTHY.value, Health.DEGRADED.value, Health.UNHEALTHY.value, Health.UNKNOWN.value)
NOT_GROUPED = "none"
NAMES_REMEMBERED = 1 << 16
GROUPINGS = ("rack", "switch", "partition", NOT_GROUPED, *(kind for kind in KINDS if kind in {"image", "driver"}))
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NUMBERS = re.compile(r"(\d+)")


class NodeCell(msgspec.Struct, frozen=True, gc=False):
    """One node, as far as pictures and lists need it: `state` is where it stands in its life."""

    record: NodeRecord
    health: str
    state: str

    @classmethod
    def of(cls, record: NodeRecord, health: str) -> NodeCell:
        """A node by its record, and its own word."""
        return cls(record, health, str.__str__(record.state))  # `.value` takes ten times as long, and there are 12 500

    @property
    def well(self) -> bool:
        """Whether nothing about it wants attention."""
        state, health = self.state, self.health
        return (state == "healthy" and health == "healthy") or state == "retired"


class HeatmapFilter(msgspec.Struct, frozen=True):
    """Which nodes: `match` is part of a name or a shell pattern; empty words mean any. `broken` leaves out those that are well."""

    match: str = ""
    state: str = ""
    health: str = ""
    place: str = ""  # KIND:NAME
    broken: bool = False

    def fits(self, seen: NodeCell) -> bool:
        """Whether a node is among them."""
        if (self.state and seen.state != self.state) or (self.health and seen.health != self.health):
            return False
        if (self.broken and seen.well) or (self.place and self.place not in seen.record.places.keys):
            return False
        name, match = seen.record.node, self.match
        return not match or (fnmatchcase(name, match) if set(match) & set("*?[") else match in name)


class LocationGroup(msgspec.Struct, frozen=True):
    """Nodes that share a place; a node's state is the letter at its place in `states`, an index into the words."""

    name: str
    nodes: tuple[str, ...]
    states: str
    healths: str


class HeatmapPicture(msgspec.Struct, frozen=True):
    """What the heat map draws, as of `at` (UTC s)."""

    at: float
    by: str
    states: tuple[str, ...]
    healths: tuple[str, ...]
    groups: tuple[LocationGroup, ...]


class HeatmapRow(msgspec.Struct, frozen=True):
    """One group in words: how many of its nodes are in which state and of which health."""

    name: str
    total: int
    states: tuple[tuple[str, int], ...]
    healths: tuple[tuple[str, int], ...]
    broken: int


Groups = list[tuple[str, list[NodeCell]]]


def group_nodes(records: Iterable[NodeRecord], health: Callable[[str], str], wanted: HeatmapFilter, by: str) -> Groups:
    """The nodes that are wanted, by the place they share, both in the order in which people count."""
    everybody = wanted == HeatmapFilter()
    found: defaultdict[str, list[NodeCell]] = defaultdict(list)
    for record in records:
        seen = NodeCell(record, health(record.node), str.__str__(record.state))
        if everybody or wanted.fits(seen):
            found[_group_location(record, by)].append(seen)
    for nodes in found.values():
        nodes.sort(key=lambda seen: natural_sort_key(seen.record.node))
    return sorted(found.items(), key=lambda item: (not item[0], natural_sort_key(item[0])))


def build_heatmap_picture(groups: Iterable[tuple[str, list[NodeCell]]], by: str, at: float) -> HeatmapPicture:
    """The groups, for the heat map."""
    states = {word: _DIGITS[place] for place, word in enumerate(STATES)}
    healths = {word: _DIGITS[place] for place, word in enumerate(HEALTHS)}
    drawn = tuple(
        LocationGroup(
            name,
            tuple(seen.record.node for seen in nodes),
            "".join(states[seen.state] for seen in nodes),
            "".join(healths[seen.health] for seen in nodes),
        )
        for name, nodes in groups
    )
    return HeatmapPicture(at, by, STATES, HEALTHS, drawn)


def build_heatmap_rows(groups: Iterable[tuple[str, list[NodeCell]]]) -> list[HeatmapRow]:
    """The groups in words, the most broken first."""
    found = [
        HeatmapRow(
            name,
            len(nodes),
            _count_words(STATES, [seen.state for seen in nodes]),
            _count_words(HEALTHS, [seen.health for seen in nodes]),
            sum(not seen.well for seen in nodes),
        )
        for name, nodes in groups
    ]
    return sorted(found, key=lambda row: -row.broken)


def heatmap_legend(rows: Iterable[HeatmapRow], *, by_health: bool) -> tuple[tuple[str, int], ...]:
    """The words by which nodes are coloured, and how many nodes have each; those that none has are left out."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update(dict(row.healths if by_health else row.states))
    return tuple((word, found[word]) for word in (HEALTHS if by_health else STATES) if found[word])


@lru_cache(maxsize=NAMES_REMEMBERED)
def natural_sort_key(name: str) -> tuple[tuple[int, str], ...]:
    """A key under which gpu-9 comes before gpu-10. Remembered: a fleet's names are the same every time.

    >>> sorted(["gpu-10", "gpu-9", "a"], key=natural_sort_key)
    ['a', 'gpu-9', 'gpu-10']
    """
    parts = _NUMBERS.split(name)
    return tuple((int(part), "") if part.isdecimal() and part.isascii() else (-1, part) for part in parts)


def _group_location(record: NodeRecord, by: str) -> str:
    if by == NOT_GROUPED:
        return ""
    places = record.places.of(by)
    return places[0] if places else ""


def _count_words(words: Iterable[str], there: list[str]) -> tuple[tuple[str, int], ...]:
    kinds = set(there)
    return tuple((word, there.count(word)) for word in words if word in kinds)
