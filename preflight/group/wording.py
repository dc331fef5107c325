"""What is said of one accused, in one line. Pure."""

from __future__ import annotations

from preflight.group.records import Named


def sentence(named: Named) -> str:
    """What is said of one accused."""
    through = f" through {named.nic}" if named.nic else f" on rail {named.rail}" if named.rail is not None else ""
    reached = f", at {named.score:.0%} of the others at its best" if named.score else ""
    return f"{named.kind.value} {' - '.join(named.where)}{through}: {'; '.join(named.evidence)}{reached}"
