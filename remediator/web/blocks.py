"""What blocks automation, short enough for every page, and what people set by hand besides. Pure.

Sentences that differ only in whom they are about become one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from remediator.model.blocking import of_one
from remediator.model.hold import NodeHold, Owner
from remediator.model.standing import Standing
from remediator.standing import silences

ALIKE_MIN = 3  # so many sentences that end alike are said as one
NAMED_MAX = 200
_PLURAL = (("is ", "are "), ("waits ", "wait "))


class Block(msgspec.Struct, frozen=True):
    """One sentence, and the single ones that it stands for, if it stands for several. `single`: it is about incidents alone."""

    text: str
    several: tuple[str, ...] = ()
    single: bool = False


class ByHand(msgspec.Struct, frozen=True):
    """How many nodes people have cordoned, and how many silences stand. Neither keeps the system from acting elsewhere."""

    cordons: int = 0
    silences: int = 0


def by_hand(holds: Iterable[NodeHold], standing: Mapping[str, Standing], now: float) -> ByHand:
    """What stands at `now` (UTC s)."""
    cordons = sum(hold.schedulable is False and hold.owner is Owner.OPERATOR for hold in holds)
    return ByHand(cordons, sum(now < silence.until for silence in silences(standing)))


def folded(sentences: Iterable[str]) -> tuple[Block, ...]:
    """The sentences, in their order; those alike stand together where the first of them stood.

    >>> [b.text for b in folded(["mode is observe", *(f"inc-{n} on n{n} is held back by a guard" for n in range(4))])]
    ['mode is observe', '4 incidents are held back by a guard']
    """
    together: dict[tuple[str, bool], list[str]] = {}
    for sentence in dict.fromkeys(sentences):
        about = of_one(sentence)
        together.setdefault((about.what if about else sentence, about is not None), []).append(sentence)
    blocks = []
    for (what, single), alike in together.items():
        if len(alike) < ALIKE_MIN:
            blocks += [Block(sentence, single=single) for sentence in alike]
        else:
            blocks.append(Block(f"{len(alike)} incidents {_plural(what)}", tuple(alike[:NAMED_MAX]), single))
    return tuple(blocks)


def _plural(what: str) -> str:
    for one, many in _PLURAL:
        if what.startswith(one):
            return many + what.removeprefix(one)
    return what
