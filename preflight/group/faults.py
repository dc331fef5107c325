"""Faults that `--inject` commits in a group, to see that it names the right one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

SLOW, LINK, HANG, DIE, CORRUPT = "slow", "link", "hang", "die", "corrupt"
FORMS = "slow:NODE=SHARE, link:A,B=SHARE, hang:NODE, die:NODE, corrupt:NODE"


class FaultError(ValueError):
    """A word that is no fault. The text says what there is."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: of a node, or of the way between two. `share` is what is left of the rate."""

    kind: str
    nodes: tuple[str, ...]
    share: float = 1.0


def parse(injected: Sequence[str]) -> tuple[Fault, ...]:
    """The faults that these words ask for.

    >>> parse(["link:n1,n2=0.5"])
    (Fault(kind='link', nodes=('n1', 'n2'), share=0.5),)

    Raises:
        FaultError: a word asks for none.
    """
    return tuple(_fault(text) for text in injected)


def strangers(faults: Sequence[Fault], nodes: Collection[str]) -> list[str]:
    """The nodes that faults name and that the group does not have."""
    return sorted({node for fault in faults for node in fault.nodes} - set(nodes))


def share_of(faults: Sequence[Fault], node: str, peer: str) -> float:
    """What is left of the rate between these two.

    >>> share_of(parse(["slow:n1=0.5", "link:n1,n2=0.5"]), "n2", "n1")
    0.25
    """
    share = 1.0
    for fault in faults:
        ends = {node, peer}
        if (fault.kind == SLOW and fault.nodes[0] in ends) or (fault.kind == LINK and set(fault.nodes) == ends):
            share *= fault.share
    return share


def commits(faults: Sequence[Fault], node: str, kind: str) -> bool:
    """Whether this node is to commit a fault of that kind."""
    return any(fault.kind == kind and node in fault.nodes for fault in faults)


def _fault(text: str) -> Fault:
    kind, _, rest = text.partition(":")
    names, equals, share = rest.partition("=")
    nodes = tuple(names.split(","))
    right = all(nodes) and len(set(nodes)) == (2 if kind == LINK else 1)
    if kind in (SLOW, LINK):
        right = right and bool(equals) and 0 < _share(share) < 1
    else:
        right = right and kind in (HANG, DIE, CORRUPT) and not equals
    if not right:
        raise FaultError(f"--inject {text!r} is no fault of a group; there is {FORMS}, SHARE between 0 and 1")
    return Fault(kind=kind, nodes=nodes, share=_share(share) if equals else 1.0)


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
