"""Messages about culprits and suspects. Pure."""

from __future__ import annotations

from preflight.fault_localisation.localisation_records import Kind
from preflight.group.group_records import Accusation, GroupDocument, Named, Standing
from preflight.results import Verdict


def describe_culprit(named: Named) -> str:
    """The message about one culprit or suspect."""
    through = f" through {named.nic}" if named.nic else f" on rail {named.rail}" if named.rail is not None else ""
    reached = f", at best {named.score:.0%} of the others" if named.score else ""
    return f"{named.kind.value} {' - '.join(named.where)}{through}: {'; '.join(named.evidence)}{reached}"


def build_accusations(document: GroupDocument) -> dict[int, Accusation]:
    """Accusations by rank: what the group found, without what the node's own test already reported.

    Both ends of a bad link are informed, and neither is accused. A switch belongs to no node.
    """
    rank_of = {node.node: node.rank for node in document.nodes}
    told = {n.node for n in document.nodes if n.standing is Standing.UNFIT and n.own is not None and n.own.told}
    said: dict[int, Accusation] = {}
    for one in sorted(document.culprits, key=lambda one: one.kind is Kind.LINK):
        ends = {Kind.NODE: one.where[:1], Kind.NIC: one.where[:1], Kind.LINK: one.where}.get(one.kind, ())
        verdict = Verdict.INCONCLUSIVE if one.kind is Kind.LINK else Verdict.FAIL
        for node in ends:
            if node not in told:
                said.setdefault(
                    rank_of[node], Accusation(verdict=verdict, reason=describe_culprit(one), nic=_name_adapter(one))
                )
    return said


def _name_adapter(named: Named) -> str:
    """A GPU's rail is named by the GPU, which is not an adapter's name."""
    return "" if named.nic.startswith("cuda:") else named.nic
