"""The lost ranks of a swap, grouped for a page. Pure."""

from __future__ import annotations

from typing import NamedTuple

from vocabulary.messages.swap_messages import JobSwap


class LossGroup(NamedTuple):
    """Ranks lost together on `node`; `after` is the node of the spares that took them over, empty if none did."""

    ranks: tuple[int, ...]
    node: str
    after: str


def group_losses(swap: JobSwap) -> tuple[LossGroup, ...]:
    """Return the listed losses by node and successor, in order of the first rank lost."""
    found: dict[tuple[str, str], list[int]] = {}
    for each in swap.lost:
        found.setdefault((each.node, each.after), []).append(each.rank)
    return tuple(LossGroup(tuple(sorted(ranks)), node, after) for (node, after), ranks in found.items())


def describe_size(swap: JobSwap) -> str:
    """Return how the number of ranks changed; empty if it did not."""
    return f"{swap.ranks_before} to {swap.ranks} ranks" if swap.ranks and swap.ranks != swap.ranks_before else ""
