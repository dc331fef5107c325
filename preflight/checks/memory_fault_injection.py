"""Injects memory faults into good memory; called after each pattern is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from preflight.kernels.memory_errors import Piece
from preflight.kernels.memory_patterns import Pattern

FLIPPED_BIT, STUCK_BIT, LINE_BIT, DECAYED_BIT = 21, 42, 13, 30
LINE_STRIDE, LINE_WORDS = 97, 4096
ALIASED_WORDS = 512
DECAYED_WORDS = 32


class MemoryFaultInjector:
    """Injects one fault in the middle piece; "" injects none."""

    def __init__(self, fault: str, pieces: Sequence[Piece]) -> None:
        self._memory = pieces[len(pieces) // 2].memory
        self._place = self._memory.numel() * 2 // 3
        self._standing = 0
        acts: dict[str, Callable[[], None]] = {
            "bit_flip": self._flip_once,
            "stuck_bit": self._stick,
            "stuck_line": self._stick_line,
            "alias": self._alias,
            "decay": self._decay,
        }
        self._act = acts.get(fault)

    def __call__(self, _: Pattern) -> None:
        """Apply the fault to memory that holds a new pattern."""
        self._standing += 1
        if self._act:
            self._act()

    def _flip_once(self) -> None:
        if self._standing == 2:
            self._memory[self._place] ^= 1 << FLIPPED_BIT

    def _stick(self) -> None:
        self._memory[self._place] |= 1 << STUCK_BIT

    def _stick_line(self) -> None:
        self._memory[1::LINE_STRIDE][:LINE_WORDS] &= ~(1 << LINE_BIT)

    def _alias(self) -> None:
        apart = 1 << (self._memory.numel() - ALIASED_WORDS).bit_length() - 1
        self._memory[apart : apart + ALIASED_WORDS] = self._memory[:ALIASED_WORDS].clone()

    def _decay(self) -> None:
        self._memory[self._place : self._place + DECAYED_WORDS] &= ~(1 << DECAYED_BIT)
