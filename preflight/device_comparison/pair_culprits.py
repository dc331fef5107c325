"""Finds the culprits of wrong data between pairs of devices. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

Pair = tuple[str, str]


class PairCulprits(NamedTuple):
    """Devices that several wrong pairs share, and the remaining pairs: a link, or one of its ends."""

    devices: tuple[str, ...]
    pairs: tuple[Pair, ...]


def find_pair_culprits(wrong: Iterable[Pair], all_devices: Collection[str]) -> PairCulprits:
    """Name the device in most wrong pairs (at least two), then repeat with the remaining pairs.

    A single pair cannot show which end, or the link, is at fault. If no good device would remain, none is named: an error in
    every pair is not a single device's.
    """
    left = {(min(a, b), max(a, b)) for a, b in wrong if a != b}
    pairs = tuple(sorted(left))
    named: list[str] = []
    while left:
        touching = Counter(end for pair in left for end in pair)
        most = max(touching.values())
        if most < 2:
            break
        worst = [device for device, count in touching.items() if count == most]
        named += worst
        left = {pair for pair in left if not set(pair) & set(worst)}
    if len(named) == len(all_devices):
        return PairCulprits((), pairs)
    return PairCulprits(tuple(sorted(named)), tuple(sorted(left)))
