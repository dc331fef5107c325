"""What blocks automation, short enough for every page: sentences that differ only in whom they are about become one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

ALIKE_MIN = 3  # so many sentences that end alike are said as one
NAMED_MAX = 200
_ABOUT = re.compile(r"(?P<incident>inc-\S+) on (?P<node>\S+) (?P<what>.+)", re.DOTALL)
_PLURAL = (("is ", "are "), ("waits ", "wait "))


class Block(msgspec.Struct, frozen=True):
    """One sentence, and the single ones that it stands for, if it stands for several."""

    text: str
    several: tuple[str, ...] = ()


def folded(sentences: Iterable[str]) -> tuple[Block, ...]:
    """The sentences, in their order; those alike stand together where the first of them stood.

    >>> [b.text for b in folded(["mode is observe", *(f"inc-{n} on n{n} is held back by a guard" for n in range(4))])]
    ['mode is observe', '4 incidents are held back by a guard']
    """
    together: dict[str, list[str]] = {}
    for sentence in dict.fromkeys(sentences):
        about = _ABOUT.fullmatch(sentence)
        together.setdefault(about["what"] if about else sentence, []).append(sentence)
    blocks = []
    for what, alike in together.items():
        if len(alike) < ALIKE_MIN:
            blocks += [Block(sentence) for sentence in alike]
        else:
            blocks.append(Block(f"{len(alike)} incidents {_plural(what)}", tuple(alike[:NAMED_MAX])))
    return tuple(blocks)


def _plural(what: str) -> str:
    for one, many in _PLURAL:
        if what.startswith(one):
            return many + what.removeprefix(one)
    return what
