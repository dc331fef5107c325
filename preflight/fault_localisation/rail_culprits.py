"""Finds one rail's culprits and suspects from its cells: first switches, then nodes, then links."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from preflight.fault_localisation.chance_probability import compute_tail_chance, estimate_background_share
from preflight.fault_localisation.localisation_records import Accused, Kind, Topology
from preflight.fault_localisation.pair_scores import ACROSS, CLASS_WORDS, Bools, Cells, Ints
from preflight.fault_localisation.switch_faults import SwitchGroup, find_slow_leaves, find_slow_uplinks
from vocabulary.text.plurals import format_count

_WITNESSES_MIN = 2  # slow cells with cleared partners required to name a node: a single one may be the link
_FALSE_NAMES = 0.01  # expected number of nodes named by accident in one verdict
_FALSE_SUSPECTS = 1.0
_FALSE_LINKS = 0.05
_CLEARED_SHARE_MIN = 0.5  # with fewer, "slow" and "healthy" may be swapped
_WIDE_SHARE = 0.15  # slow cells explained by neither end nor switch: above it, the fabric itself is noisy
_WIDE_CELLS_MIN = 8


@dataclass(frozen=True)
class RailCulprits:
    """One rail's result. `cleared` and `measured` are (N,) masks over the topology's nodes; `too_few`: most are not cleared."""

    culprits: tuple[Accused, ...]
    suspects: tuple[Accused, ...]
    cleared: Bools
    measured: Bools
    too_few: bool


@dataclass(frozen=True)
class _RailScene:
    """The cells, their leaves, the measured nodes, the cleared ones (one clean cell), and the cells that switches explain."""

    cells: Cells
    topology: Topology
    leaf: Ints
    measured: Bools
    clear: Bools
    groups: tuple[SwitchGroup, ...]
    explained: Bools

    def witnesses(self, node: int) -> tuple[int, int]:
        """The number of slow cells and of all cells of a node with cleared partners, without those that switches explain."""
        cells = self.cells
        with_clear = ((cells.a == node) & self.clear[cells.b]) | ((cells.b == node) & self.clear[cells.a])
        mine = with_clear & ~self.explained
        return int((mine & cells.slow).sum()), int(mine.sum())


def find_rail_culprits(cells: Cells, topology: Topology) -> RailCulprits:
    """Culprits and suspects among the cells of one rail.

    One clean cell clears a node. A node is named if it has none, at least two of its slow cells have cleared partners, and
    chance is unlikely; or if it is slow more often than chance explains. A link is named if it was slow in every one of several
    measurements, and both ends were clean since. Weaker evidence makes a suspect.
    """
    scene = _build_scene(cells, topology)
    too_few = int(scene.clear.sum()) < max(2, math.ceil(_CLEARED_SHARE_MIN * int(scene.measured.sum())))
    named, suspected = _accuse_nodes(scene, too_few=too_few)
    links = [] if too_few else _accuse_links(scene, {*named, *suspected})
    groups = [] if too_few else [_accused_group(scene, group) for group in scene.groups]
    culprits = [_accused_node(scene, node) for node in named] + [link for link, sure in links if sure] + groups
    suspects = [_accused_node(scene, node) for node in suspected] + [link for link, sure in links if not sure]
    cleared = scene.clear.copy()
    cleared[[*named, *suspected]] = False
    return RailCulprits(tuple(culprits), tuple(suspects), cleared, scene.measured, too_few)


def find_diffuse_classes(cells: Cells, topology: Topology) -> frozenset[int]:
    """Classes that are not one cluster: many cells between clean nodes are slow, and no switch explains it."""
    scene = _build_scene(cells, topology)
    between = scene.clear[cells.a] & scene.clear[cells.b] & ~scene.explained
    return frozenset(
        kind
        for kind in range(len(CLASS_WORDS))
        if (mine := between & (cells.kind == kind)).sum() >= _WIDE_CELLS_MIN
        and (mine & cells.slow).sum() > _WIDE_SHARE * mine.sum()
    )


def _build_scene(cells: Cells, topology: Topology) -> _RailScene:
    names = sorted(set(topology.leaf_of.values()))
    number = {name: place for place, name in enumerate(names)}
    leaf = np.array(
        [number[topology.leaf_of[n]] if n in topology.leaf_of else -1 for n in topology.nodes], dtype=np.int64
    )
    measured, clear = np.zeros(len(leaf), dtype=bool), np.zeros(len(leaf), dtype=bool)
    for ends in (cells.a, cells.b):
        measured[ends] = True
        clear[ends[cells.clean]] = True
    groups = find_slow_leaves(cells, leaf, measured, clear)
    explained = np.zeros(len(cells.a), dtype=bool)
    for group in groups:
        explained |= group.explains
    for group in find_slow_uplinks(cells, leaf, clear, explained):
        groups.append(group)
        explained |= group.explains
    return _RailScene(cells, topology, leaf, measured, clear, tuple(groups), explained)


def _accuse_nodes(scene: _RailScene, *, too_few: bool) -> tuple[list[int], list[int]]:
    cells = scene.cells
    open_slow = cells.slow & ~scene.explained
    touched = [int(n) for n in np.unique(np.concatenate([cells.a[open_slow], cells.b[open_slow]]))]
    seen = {node: scene.witnesses(node) for node in touched}
    # The background share, without nodes that are repeatedly slow, since those are in question.
    spared = scene.clear.copy()
    spared[[node for node in touched if seen[node][0] >= _WITNESSES_MIN]] = False
    between = spared[cells.a] & spared[cells.b] & ~scene.explained
    share = estimate_background_share(int((between & cells.slow).sum()), int(between.sum()))
    whole = [g.leaves[0] for g in scene.groups if len(g.leaves) == 1]
    named, suspected = [], []
    for node in touched:
        slow, count = seen[node]
        by_chance = compute_tail_chance(slow, count, share) * len(scene.leaf)
        if slow >= _WITNESSES_MIN + bool(scene.clear[node]) and by_chance < _FALSE_NAMES and not too_few:
            named.append(node)
        elif not scene.clear[node] or (slow >= _WITNESSES_MIN and by_chance < _FALSE_SUSPECTS):
            suspected.append(node)
    hidden = scene.measured & ~scene.clear & ~np.isin(scene.leaf, whole)
    hidden[touched] = False
    return named, [*suspected, *np.flatnonzero(hidden).tolist()]


def _accuse_links(scene: _RailScene, nodes: set[int]) -> list[tuple[Accused, bool]]:
    """Slow cells without another explanation, each with whether it was slow too often for chance."""
    cells = scene.cells
    between = ~scene.explained & scene.clear[cells.a] & scene.clear[cells.b]
    # How often a test is slow by chance. Each test of a cell that was clean once counts; of one that never was, only
    # the first: it may be the next bad link.
    tests = np.where(cells.slow, 1, cells.times)
    slow_tests = np.where(cells.slow, 1, cells.times_slow)
    found = []
    for index in np.flatnonzero(between & cells.slow).tolist():
        ends = int(cells.a[index]), int(cells.b[index])
        if nodes.isdisjoint(ends):
            score, times = math.exp(cells.best[index]), int(cells.times[index])
            margin = math.exp(cells.bound[index]) - score
            one, other = sorted(scene.topology.nodes[end] for end in ends)
            sentence = f"slow {times} of {times} times between two nodes that are fast with other partners"
            alike = between & (cells.kind == cells.kind[index])
            alike[index] = False
            share = estimate_background_share(int(slow_tests[alike].sum()), int(tests[alike].sum()))
            sure = (
                times > 1
                and share**times * len(cells.a) < _FALSE_LINKS
                and all(_is_clean_since(cells, end, index) for end in ends)
            )
            found.append((Accused(Kind.LINK, (one, other), None, score, margin, (sentence,)), sure))
    return found


def _is_clean_since(cells: Cells, end: int, index: int) -> bool:
    """Whether the node was clean after the link was last slow: an intermittently bad node looks like a link at first."""
    touching = (cells.a == end) | (cells.b == end)
    return bool((touching & cells.clean & (cells.last > cells.last[index])).any())


def _accused_node(scene: _RailScene, node: int) -> Accused:
    cells = scene.cells
    mine = ((cells.a == node) | (cells.b == node)) & ~scene.explained
    mine = mine if mine.any() else (cells.a == node) | (cells.b == node)
    best = int(np.flatnonzero(mine)[np.argmax((cells.best - cells.bound)[mine])])
    slow, count = scene.witnesses(node)
    sentence = f"slow with {slow} of {count} cleared partners"
    if not scene.clear[node]:
        sentence += f", and at full rate with none of its {format_count(int(mine.sum()), 'partner')}"
    score = math.exp(cells.best[best])
    margin = math.exp(cells.bound[best]) - score
    return Accused(Kind.NODE, (scene.topology.nodes[node],), None, score, margin, (sentence,))


def _accused_group(scene: _RailScene, group: SwitchGroup) -> Accused:
    names = sorted(set(scene.topology.leaf_of.values()))
    cells = scene.cells
    mine = group.explains & cells.slow & (cells.kind == ACROSS)
    middle = float(np.median(np.exp(cells.best[mine]))) if mine.any() else 0.0
    bound = float(np.median(np.exp(cells.bound[mine]))) if mine.any() else 0.0
    where = tuple(names[number] for number in group.leaves)
    return Accused(Kind.SWITCH, where, None, middle, bound - middle, (group.sentence,))
