"""Who is at fault if data came wrong over some pairs of devices. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

Pair = tuple[str, str]


class PairCulprits(NamedTuple):
    """Devices that several wrong pairs have in common, and the pairs that are left: a link, or one of its ends."""

    devices: tuple[str, ...]
    pairs: tuple[Pair, ...]


def find_pair_culprits(wrong: Iterable[Pair], all_devices: Collection[str]) -> PairCulprits:
    """Whoever is an end of most wrong pairs, and of two at least, is named; then of what is left, until nobody is.

    One pair alone cannot say which end, nor whether it is the link. If nobody is left to be good, nobody is named either:
    what spoils every pair is no single device.
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
