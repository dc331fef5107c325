"""What is said of the accused. Pure."""

from __future__ import annotations

from preflight.group.records import GroupDocument, Named, Standing
from preflight.localise.records import Kind


def sentence(named: Named) -> str:
    """What is said of one accused."""
    through = f" through {named.nic}" if named.nic else f" on rail {named.rail}" if named.rail is not None else ""
    reached = f", at {named.score:.0%} of the others at its best" if named.score else ""
    return f"{named.kind.value} {' - '.join(named.where)}{through}: {'; '.join(named.evidence)}{reached}"


def accusations(document: GroupDocument) -> dict[str, str]:
    """By node, what the group found against it: not what its own test found, which that test told already."""
    met = {node.node for node in document.nodes if node.standing is not Standing.UNFIT}
    ends = (Kind.NODE, Kind.NIC)
    return {one.where[0]: sentence(one) for one in document.culprits if one.kind in ends and one.where[0] in met}
