"""Faults that `--inject` injects into a group, to verify the detection. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

SLOW, LINK, HANG, DIE, CORRUPT = "slow", "link", "hang", "die", "corrupt"
FORMS = "slow:NODE=SHARE, link:A,B=SHARE, hang:NODE, die:NODE, corrupt:NODE"


class FaultError(ValueError):
    """An invalid fault. The message lists the valid ones."""


class GroupFault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: of a node, or of the path between two. `share` is the remaining rate."""

    kind: str
    nodes: tuple[str, ...]
    share: float = 1.0


def parse_injected_faults(injected: Sequence[str]) -> tuple[GroupFault, ...]:
    """Parse the requested faults.

    >>> parse_injected_faults(["link:n1,n2=0.5"])
    (Fault(kind='link', nodes=('n1', 'n2'), share=0.5),)

    Raises:
        FaultError: an invalid fault.
    """
    return tuple(_parse_fault(text) for text in injected)


def find_unknown_nodes(faults: Sequence[GroupFault], nodes: Collection[str]) -> list[str]:
    """The nodes in faults that the group does not have."""
    return sorted({node for fault in faults for node in fault.nodes} - set(nodes))


def compute_rate_share(faults: Sequence[GroupFault], node: str, peer: str) -> float:
    """The remaining rate between these two.

    >>> compute_rate_share(parse_injected_faults(["slow:n1=0.5", "link:n1,n2=0.5"]), "n2", "n1")
    0.25
    """
    share = 1.0
    for fault in faults:
        ends = {node, peer}
        if (fault.kind == SLOW and fault.nodes[0] in ends) or (fault.kind == LINK and set(fault.nodes) == ends):
            share *= fault.share
    return share


def commits_fault(faults: Sequence[GroupFault], node: str, kind: str) -> bool:
    """Whether this node must inject a fault of that kind."""
    return any(fault.kind == kind and node in fault.nodes for fault in faults)


def _parse_fault(text: str) -> GroupFault:
    kind, _, rest = text.partition(":")
    names, equals, share = rest.partition("=")
    nodes = tuple(names.split(","))
    right = all(nodes) and len(set(nodes)) == (2 if kind == LINK else 1)
    if kind in (SLOW, LINK):
        right = right and bool(equals) and 0 < _parse_share(share) < 1
    else:
        right = right and kind in (HANG, DIE, CORRUPT) and not equals
    if not right:
        raise FaultError(f"--inject {text!r} is not a group fault; use one of {FORMS}, with SHARE between 0 and 1")
    return GroupFault(kind=kind, nodes=nodes, share=_parse_share(share) if equals else 1.0)


def _parse_share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
