"""Lines of memory that are read so often that neighbouring rows may lose bits, and how they get their words back. Torch only.

The mapping of addresses to rows is not published. So groups of lines at many strides are read, at random places.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from preflight.kernels.memory_errors import WORD_BYTES, Piece
from preflight.kernels.memory_patterns import ALL_BITS, GOLDEN, Pattern, splitmix
from preflight.kernels.torch_memory import convert_addresses

LINE_BYTES = 128  # of the L2
LINE_WORDS = LINE_BYTES // WORD_BYTES
STRIDES = tuple(1 << shift for shift in range(10, 25))  # bytes, 1 KiB to 16 MiB
SIDES = (2, 8, 24)  # lines of a group; refresh management that tracks few rows loses count of many


class Layout(NamedTuple):
    """The lines of each group: `sides` of them, `stride` bytes apart."""

    stride: int
    sides: int


class Aggressors(NamedTuple):
    """The groups of one round. `starts` has int64[groups] for each piece: the offsets of their first lines, in words."""

    pieces: Sequence[Piece]
    layout: Layout
    starts: tuple[Any, ...]

    @property
    def groups(self) -> int:
        """How many there are."""
        return sum(starts.numel() for starts in self.starts)

    def list_addresses(self) -> Any:
        """The byte address of each group's first line, for a kernel."""
        return torch.cat(
            [
                starts * WORD_BYTES + piece.memory.data_ptr()
                for piece, starts in zip(self.pieces, self.starts, strict=True)
            ]
        )

    def list_words(self) -> list[Any]:
        """For each piece the offsets of all words of all lines."""
        return [
            (
                starts[:, None, None]
                + torch.arange(self.layout.sides, device=starts.device)[:, None] * (self.layout.stride // WORD_BYTES)
                + torch.arange(LINE_WORDS, device=starts.device)
            ).flatten()
            for starts in self.starts
        ]


def choose_aggressors(pieces: Sequence[Piece], number: int, groups: int) -> Aggressors | None:
    """The groups of the round `number`; each layout that fits comes before one comes again. None if none fits."""
    fitting = [
        Layout(stride, sides)
        for stride in STRIDES
        for sides in SIDES
        if any(_count_starts(piece, Layout(stride, sides)) for piece in pieces)
    ]
    if not fitting:
        return None
    layout = sorted(fitting, key=lambda each: splitmix(each.stride + each.sides))[number % len(fitting)]
    total = sum(_count_starts(piece, layout) for piece in pieces)
    starts: list[list[int]] = [[] for _ in pieces]
    for group in range(groups):
        draw = splitmix((splitmix(number) + group * GOLDEN) & ALL_BITS) % total
        piece, word = locate_start(pieces, layout, draw)
        starts[piece].append(word)
    return Aggressors(
        pieces,
        layout,
        tuple(
            torch.tensor(words, dtype=torch.int64, device=piece.memory.device)
            for piece, words in zip(pieces, starts, strict=True)
        ),
    )


def locate_start(pieces: Sequence[Piece], layout: Layout, draw: int) -> tuple[int, int]:
    """Piece, and offset in words, of the first line number `draw` of those where a whole group fits."""
    ends = list(itertools.accumulate(_count_starts(piece, layout) for piece in pieces))
    number = bisect.bisect_right(ends, draw)
    before = ends[number - 1] if number else 0
    return number, _skip_to_line(pieces[number]) + (draw - before) * LINE_WORDS


def restore_aggressors(aggressors: Aggressors, pattern: Pattern) -> None:
    """Write the words of `pattern` into the lines of all groups, which hold no data once they were discarded."""
    for piece, words in zip(aggressors.pieces, aggressors.list_words(), strict=True):
        wanted = words + piece.base
        convert_addresses(wanted, pattern)
        piece.memory[words] = wanted


def find_neighbour(aggressors: Aggressors) -> tuple[int, int]:
    """Piece and offset of a word in no line of a group, near the first group: where an injected fault flips a bit."""
    number = next(number for number, starts in enumerate(aggressors.starts) if starts.numel())
    taken = set(aggressors.list_words()[number].tolist())
    words = aggressors.pieces[number].memory.numel()
    first = int(aggressors.starts[number][0])
    return number, next(word for word in itertools.chain(range(first, words), range(first)) if word not in taken)


def _count_starts(piece: Piece, layout: Layout) -> int:
    """At how many lines a group may start."""
    lines = (piece.memory.numel() - _skip_to_line(piece)) // LINE_WORDS
    return max(int(lines) - (layout.sides - 1) * layout.stride // LINE_BYTES, 0)


def _skip_to_line(piece: Piece) -> int:
    """The words before the first whole line: a discard takes the address of a line only."""
    return -int(piece.memory.data_ptr()) % LINE_BYTES // WORD_BYTES
