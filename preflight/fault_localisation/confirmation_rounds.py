"""Plans the next pairs to test: each suspect with cleared nodes, never two suspects together."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.fault_localisation.localisation_records import (
    Accused,
    Kind,
    LocalisationVerdict,
    Pair,
    PairResult,
    Round,
    Topology,
)


def plan_confirmation_round(verdict: LocalisationVerdict, topology: Topology, results: Sequence[PairResult]) -> Round:
    """One more round of disjoint pairs, to confirm the suspects; empty without suspects or cleared nodes.

    A suspect node or NIC, and a node without a readable result, gets a cleared partner that it was not tested with, under its
    own leaf if possible, so that no uplink is involved. A suspect link is tested again unchanged, and in the next round each
    of its ends with another node (or an earlier partner in a small group). Judge the new results, with a higher round
    number, *together with* the old ones.
    """
    tried = {frozenset((r.a, r.b)) for r in results}
    free = dict.fromkeys(verdict.cleared)
    pairs: list[Pair] = []
    ends = {a.where[0] for a in verdict.suspects if a.kind in (Kind.NODE, Kind.NIC)} | set(verdict.unknown)
    links = [a for a in verdict.suspects if a.kind is Kind.LINK]
    of_links = {frozenset(link.where) for link in links}
    due: set[str] = set()
    for link in links:
        one, other = link.where
        if _are_ends_due(link, results):
            due |= {one, other}
        elif one in free and other in free:
            pairs.append((one, other))
            del free[one], free[other]
    # A link's ends are cleared nodes: they may be partners of others, but not of themselves.
    for name in sorted((ends | due) - {name for pair in pairs for name in pair}):
        if name in verdict.cleared and name not in free:
            continue
        free.pop(name, None)
        partner = _choose_partner(name, free, topology, tried)
        if partner is None and name in due:
            partner = _choose_partner(name, free, topology, of_links)
        if partner is not None:
            pairs.append((name, partner))
            del free[partner]
    return tuple(pairs)


def _are_ends_due(link: Accused, results: Sequence[PairResult]) -> bool:
    """Whether the link was tested again, and its ends not since."""
    of_link = {r.round for r in results if {r.a, r.b} == set(link.where)}
    return len(of_link) > 1 and any(
        max(r.round for r in results if end in (r.a, r.b)) == max(of_link) for end in link.where
    )


def _choose_partner(name: str, free: dict[str, None], topology: Topology, tried: set[frozenset[str]]) -> str | None:
    leaf = topology.leaf_of.get(name)
    fresh = [partner for partner in free if frozenset((name, partner)) not in tried]
    near = [partner for partner in fresh if leaf is not None and topology.leaf_of.get(partner) == leaf]
    return next(iter(near or fresh), None)
