"""Derives one verdict from all results: each rail separately, then what the rails have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from preflight.fault_localisation.localisation_records import (
    Accused,
    Conclusion,
    Kind,
    LocalisationVerdict,
    PairExpectations,
    PairResult,
    Topology,
)
from preflight.fault_localisation.pair_scores import CLASS_WORDS, Cells, is_readable, score_cells
from preflight.fault_localisation.rail_culprits import RailCulprits, find_diffuse_classes, find_rail_culprits
from vocabulary.text.plurals import format_count

_FAST_CELLS_MIN = 3  # this many far above the baseline suggest that it is the level of slow pairs
_ENDS = (Kind.NODE, Kind.NIC)


def localise_faults(
    results: Sequence[PairResult],
    topology: Topology,
    expectations: PairExpectations | None = None,
    unfit: Mapping[str, str] | None = None,
) -> LocalisationVerdict:
    """Find the culprits from results of pairs, in any order.

    `unfit` maps nodes that failed their own test to the reason: each is a culprit, and its pairs are ignored.

    Raises:
        ValueError: a result names a node that the topology does not have, or the same node twice.
    """
    expectations, unfit = expectations or PairExpectations(), unfit or {}
    topology = replace(topology, nodes=tuple(sorted(topology.nodes)))
    _validate_results(results, topology)
    heard = [r for r in results if is_readable(r)]
    spoken = [r for r in heard if r.a not in unfit and r.b not in unfit]
    doubts: list[str] = []
    remarks: list[str] = []
    layers: dict[int | None, RailCulprits] = {}
    for rail in sorted({r.rail for r in spoken}, key=lambda number: -1 if number is None else number):
        mine = [r for r in spoken if r.rail == rail]
        seen = score_cells(mine, topology, expectations)
        if wide := find_diffuse_classes(seen, topology):
            seen = score_cells(mine, topology, expectations, wide)
        layers[rail] = find_rail_culprits(seen, topology)
        doubts += _describe_doubts(rail, seen, layers[rail])
        remarks += _build_remarks(rail, seen, expectations, wide)
    culprits = [
        *(Accused(Kind.NODE, (name,), evidence=(f"failed its own test: {unfit[name]}",)) for name in unfit),
        *_merge_rails({rail: layer.culprits for rail, layer in layers.items()}, layers, topology),
    ]
    named = {accused.where[0] for accused in culprits if accused.kind is Kind.NODE}
    suspects = [
        accused
        for accused in _merge_rails({rail: layer.suspects for rail, layer in layers.items()}, layers, topology)
        if accused.kind not in _ENDS or accused.where[0] not in named
    ]
    cleared = _list_cleared_nodes(layers, topology, {a.where[0] for a in (*culprits, *suspects) if a.kind in _ENDS})
    silent = ~np.logical_or.reduce([np.zeros(len(topology.nodes), dtype=bool), *(b.measured for b in layers.values())])
    unknown = tuple(n for n, seen in zip(topology.nodes, silent, strict=True) if seen and n not in unfit)
    if unknown:
        doubts.append(f"no readable result from {format_count(len(unknown), 'node')}: test them again")
    if culprits:
        conclusion = Conclusion.CULPRITS
    else:
        conclusion = Conclusion.INCONCLUSIVE if suspects or doubts or not cleared else Conclusion.NOBODY
    return LocalisationVerdict(
        conclusion,
        tuple(sorted(culprits, key=_accused_sort_key)),
        tuple(sorted(suspects, key=_accused_sort_key)),
        cleared,
        unknown,
        len(results) - len(heard),
        (*doubts, *remarks),
    )


def _validate_results(results: Sequence[PairResult], topology: Topology) -> None:
    known = set(topology.nodes)
    for result in results:
        if result.a == result.b:
            raise ValueError(
                f"judge: round {result.round} pairs {result.a} with itself; pass a node's own failures as `unfit`"
            )
        if strange := {result.a, result.b} - known:
            raise ValueError(
                f"judge: round {result.round} has {min(strange)}, which is not in the topology; add it there"
            )


def _describe_doubts(rail: int | None, seen: Cells, said: RailCulprits) -> Iterator[str]:
    """Why this rail's silence does not mean that all is well."""
    if said.too_few:
        yield (
            f"{_format_rail_prefix(rail)}too few healthy partners: {int(said.cleared.sum())} of {int(said.measured.sum())} nodes are cleared, "
            "so no culprit is named; test against known good nodes"
        )
    for kind, word in enumerate(CLASS_WORDS):
        mine = seen.kind == kind
        if 2 * int((mine & ~seen.clean).sum()) > max(2, int(mine.sum())):
            yield f"{_format_rail_prefix(rail)}most pairs {word} are slower than the best: many nodes or the fabric are slow; test fewer nodes at once"
    if seen.fast >= _FAST_CELLS_MIN:
        yield f"{_format_rail_prefix(rail)}{seen.fast} cells are far faster than the rest: the majority may be slow; give the expected rate"


def _build_remarks(
    rail: int | None, seen: Cells, expectations: PairExpectations, wide: frozenset[int]
) -> Iterator[str]:
    for kind, level in seen.level.items():
        if level < expectations.floor:
            yield f"{_format_rail_prefix(rail)}pairs {CLASS_WORDS[kind]} reach {level:.0%} of the expected rate, all of them: not the fault of a node"
    for kind in sorted(wide):
        yield (
            f"{_format_rail_prefix(rail)}pairs {CLASS_WORDS[kind]} scatter by {seen.spread[kind]:.0%} without a common end or switch: "
            "smaller slowdowns there are not detected"
        )


def _merge_rails(
    by_rail: Mapping[int | None, Sequence[Accused]], layers: Mapping[int | None, RailCulprits], topology: Topology
) -> Iterator[Accused]:
    """Report a fault common to most rails once, for the whole; a fault of few rails by rail: for a node, that is its NIC."""
    place = {name: number for number, name in enumerate(topology.nodes)}
    found: dict[tuple[Kind, tuple[str, ...]], dict[int | None, Accused]] = {}
    for rail, accused_here in by_rail.items():
        for accused in accused_here:
            found.setdefault((accused.kind, accused.where), {})[rail] = accused
    for (kind, where), said in found.items():
        rails = [rail for rail in said if rail is not None]
        measured = [
            rail
            for rail, layer in layers.items()
            if rail is not None and (kind is not Kind.NODE or layer.measured[place[where[0]]])
        ]
        if not rails or (len(rails) > 1 and 2 * len(rails) > len(measured)):
            yield Accused(
                kind,
                where,
                None,
                max(one.score for one in said.values()),
                min(one.margin for one in said.values()),
                tuple(_format_rail_prefix(rail) + sentence for rail, one in said.items() for sentence in one.evidence),
            )
        else:
            of_rail = Kind.NIC if kind is Kind.NODE else kind
            yield from (replace(said[rail], kind=of_rail, rail=rail) for rail in rails)


def _list_cleared_nodes(
    layers: Mapping[int | None, RailCulprits], topology: Topology, accused: set[str]
) -> tuple[str, ...]:
    if not layers:
        return ()
    seen = np.logical_or.reduce([layer.measured for layer in layers.values()])
    good = seen & np.logical_and.reduce([layer.cleared | ~layer.measured for layer in layers.values()])
    return tuple(n for n, fine in zip(topology.nodes, good, strict=True) if fine and n not in accused)


def _accused_sort_key(accused: Accused) -> tuple[str, tuple[str, ...], int]:
    return accused.kind.value, accused.where, -1 if accused.rail is None else accused.rail


def _format_rail_prefix(rail: int | None) -> str:
    return "" if rail is None else f"rail {rail}: "
