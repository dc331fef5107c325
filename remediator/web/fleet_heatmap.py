"""The heat map of the fleet: nodes by location, state and health. Pure; compact enough for 12 500 nodes."""

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
    """One node of a heat map or list. `state` is its lifecycle state, `health` what it reports."""

    record: NodeRecord
    health: str
    state: str

    @classmethod
    def of(cls, record: NodeRecord, health: str) -> NodeCell:
        """Build the cell from the node's record and self-reported health."""
        return cls(record, health, str.__str__(record.state))  # `.value` takes ten times as long, and there are 12 500

    @property
    def well(self) -> bool:
        """Whether the node needs no attention."""
        state, health = self.state, self.health
        return (state == "healthy" and health == "healthy") or state == "retired"


class HeatmapFilter(msgspec.Struct, frozen=True):
    """Which nodes to show. `match` is part of a name or a shell pattern; empty texts match all. `broken` hides healthy nodes."""

    match: str = ""
    state: str = ""
    health: str = ""
    place: str = ""  # KIND:NAME
    broken: bool = False

    def fits(self, seen: NodeCell) -> bool:
        """Whether a node matches."""
        if (self.state and seen.state != self.state) or (self.health and seen.health != self.health):
            return False
        if (self.broken and seen.well) or (self.place and self.place not in seen.record.places.keys):
            return False
        name, match = seen.record.node, self.match
        return not match or (fnmatchcase(name, match) if set(match) & set("*?[") else match in name)


class LocationGroup(msgspec.Struct, frozen=True):
    """Nodes at one location. The digits of `states` and `healths` are base-36 indices into the picture's lists."""

    name: str
    nodes: tuple[str, ...]
    states: str
    healths: str


class HeatmapPicture(msgspec.Struct, frozen=True):
    """The data of the heat map, as of `at` (UTC s)."""

    at: float
    by: str
    states: tuple[str, ...]
    healths: tuple[str, ...]
    groups: tuple[LocationGroup, ...]


class HeatmapRow(msgspec.Struct, frozen=True):
    """One group as a table row: its nodes by state and by health."""

    name: str
    total: int
    states: tuple[tuple[str, int], ...]
    healths: tuple[tuple[str, int], ...]
    broken: int


Groups = list[tuple[str, list[NodeCell]]]


def group_nodes(records: Iterable[NodeRecord], health: Callable[[str], str], wanted: HeatmapFilter, by: str) -> Groups:
    """Group the matching nodes by location; groups and nodes are in natural order."""
    unfiltered = wanted == HeatmapFilter()
    found: defaultdict[str, list[NodeCell]] = defaultdict(list)
    for record in records:
        seen = NodeCell(record, health(record.node), str.__str__(record.state))
        if unfiltered or wanted.fits(seen):
            found[_group_location(record, by)].append(seen)
    for nodes in found.values():
        nodes.sort(key=lambda seen: natural_sort_key(seen.record.node))
    return sorted(found.items(), key=lambda item: (not item[0], natural_sort_key(item[0])))


def build_heatmap_picture(groups: Iterable[tuple[str, list[NodeCell]]], by: str, at: float) -> HeatmapPicture:
    """Encode the groups for the heat map."""
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
    """The groups as table rows, most unhealthy nodes first."""
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
    """The states or healths that occur, with their number of nodes."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update(dict(row.healths if by_health else row.states))
    return tuple((word, found[word]) for word in (HEALTHS if by_health else STATES) if found[word])


@lru_cache(maxsize=NAMES_REMEMBERED)
def natural_sort_key(name: str) -> tuple[tuple[int, str], ...]:
    """A sort key that puts gpu-9 before gpu-10. Cached, because the names of a fleet rarely change.

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
