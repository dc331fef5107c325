"""Finds slow cells that share a switch, so that its nodes are not blamed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from preflight.fault_localisation.chance_probability import compute_tail_chance, estimate_background_share
from preflight.fault_localisation.pair_scores import ACROSS, INSIDE, Bools, Cells, Ints
from vocabulary.text.plurals import format_count

_SLOW_CELLS_MIN = 3
_SLOW_SHARE_MIN = 0.5  # of the cells through it; a few slow nodes under it would cause fewer
_ONE_NODE_SHARE_MAX = 0.67  # of the slow cells; above it, that node is the cause, not the switch
_FALSE_NAMES = 1e-3
_LEAF_SHARE = 0.8  # of a leaf's nodes, all slow at once
_LEAF_NODES_MIN = 3
_PLACES_MAX = 64  # switches named in one verdict; more suggest a fabric-wide problem


@dataclass(frozen=True)
class SwitchGroup:
    """A leaf (one number) or a path between two leaves, its cells as a mask over (C,), and the evidence sentence."""

    leaves: tuple[int, ...]
    explains: Bools
    sentence: str


def find_slow_leaves(cells: Cells, leaf: Ints, measured: Bools, clear: Bools) -> list[SwitchGroup]:
    """Leaves with nearly all nodes slow inside and across, although their partners are clean elsewhere."""
    found = []
    for number in np.unique(leaf[(leaf >= 0) & measured & ~clear]):
        members = (leaf == number) & measured
        slow = members & ~clear
        if slow.sum() < _LEAF_NODES_MIN or slow.sum() < _LEAF_SHARE * members.sum():
            continue
        one, other = slow[cells.a], slow[cells.b]
        elsewhere = measured & ~members
        rest = estimate_background_share(int((elsewhere & ~clear).sum()), int(elsewhere.sum()))
        if compute_tail_chance(int(slow.sum()), int(members.sum()), rest) * np.unique(leaf).size > _FALSE_NAMES:
            continue
        outside = cells.slow & ((one & clear[cells.b]) | (other & clear[cells.a]))
        inside = cells.slow & (cells.kind == INSIDE) & (leaf[cells.a] == number)
        if outside.sum() >= _SLOW_CELLS_MIN and inside.any():
            touching = (leaf[cells.a] == number) | (leaf[cells.b] == number)
            sentence = (
                f"{slow.sum()} of its {members.sum()} nodes are slow with every partner, inside and outside the leaf"
            )
            found.append(SwitchGroup((int(number),), touching, sentence))
    return found


def find_slow_uplinks(cells: Cells, leaf: Ints, clear: Bools, explained: Bools) -> list[SwitchGroup]:
    """Leaves, and paths between two leaves, shared by many slow cells of otherwise clean nodes; likeliest first."""
    all_cells = (cells.kind == ACROSS) & clear[cells.a] & clear[cells.b] & ~explained
    open_cells = all_cells.copy()
    found: list[SwitchGroup] = []
    while len(found) < _PLACES_MAX:
        candidates = [
            (*weighed, leaves, mask)
            for leaves, mask in _iterate_suspect_places(cells, leaf, open_cells)
            if (weighed := _weigh_suspect(cells, leaves, leaf, all_cells, mask))
        ]
        if not candidates:
            return found
        _, sentence, leaves, mask = min(candidates, key=lambda c: (c[0], c[2]))
        found.append(SwitchGroup(leaves, _mask_uplink_cells(cells, leaf, leaves), sentence))
        open_cells &= ~mask
    return found


def _mask_uplink_cells(cells: Cells, leaf: Ints, leaves: tuple[int, ...]) -> Bools:
    one, other = leaf[cells.a], leaf[cells.b]
    touching = (cells.kind == ACROSS) & ((one == leaves[0]) | (other == leaves[0]))
    path = (one == leaves[-1]) | (other == leaves[-1])
    return np.asarray(touching & path)


def _iterate_suspect_places(cells: Cells, leaf: Ints, open_cells: Bools) -> Iterator[tuple[tuple[int, ...], Bools]]:
    """Every leaf and path with enough slow cells, and its unexplained cells."""
    slow = open_cells & cells.slow
    low, high = np.minimum(leaf[cells.a], leaf[cells.b])[slow], np.maximum(leaf[cells.a], leaf[cells.b])[slow]
    ends, counts = np.unique(np.concatenate([low, high]), return_counts=True)
    paths, path_counts = np.unique(np.stack([low, high], axis=1), axis=0, return_counts=True)
    for number in ends[counts >= _SLOW_CELLS_MIN]:
        yield (int(number),), open_cells & _mask_uplink_cells(cells, leaf, (int(number),))
    for one, other in paths[path_counts >= _SLOW_CELLS_MIN]:
        yield (int(one), int(other)), open_cells & _mask_uplink_cells(cells, leaf, (int(one), int(other)))


def _weigh_suspect(
    cells: Cells, leaves: tuple[int, ...], leaf: Ints, all_cells: Bools, mask: Bools
) -> tuple[float, str] | None:
    """The log probability that these cells are slow by chance, and the sentence; None if chance is plausible."""
    slow, count = int((mask & cells.slow).sum()), int(mask.sum())
    _, per_node = np.unique(
        np.concatenate([cells.a[mask & cells.slow], cells.b[mask & cells.slow]]), return_counts=True
    )
    if slow < _SLOW_SHARE_MIN * count or per_node.max() > _ONE_NODE_SHARE_MAX * slow:
        return None
    rest = all_cells & ~mask  # including other switches' cells: if many are slow, slow cells are no evidence
    by_chance = compute_tail_chance(
        slow, count, estimate_background_share(int((rest & cells.slow).sum()), int(rest.sum()))
    )
    if by_chance * np.unique(leaf).size ** len(leaves) > _FALSE_NAMES:
        return None
    sentence = f"{slow} of {format_count(count, 'cell')} through it are slow, though both ends are fast elsewhere"
    return (math.log(by_chance) if by_chance > 0 else -math.inf), sentence
