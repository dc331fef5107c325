"""Operands: random words shaped into numbers of any type, so that any bit of them can be verified later.

Never zeros or ones: they leave most circuits idle, and a GPU computes them 13 % faster. Every number is ±[0.5, 2),
with its sign, its fraction and the last bit of its exponent at random; int8 takes any value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from preflight.kernels.digest import as_words, hashed_words, signed
from preflight.kernels.patterns import ALL_BITS, HASH, Pattern

LISTED = 16


class Form(NamedTuple):
    """How random bits become numbers: in each lane of `bits`, those in `keep` stay random and `flip` is added."""

    bits: int
    keep: int
    flip: int


# Sign, last bit of the exponent, fraction; and the exponent that means 0.5.
FORMS = {
    torch.float64: Form(64, 0x801F_FFFF_FFFF_FFFF, 0x3FE0_0000_0000_0000),
    torch.float32: Form(32, 0x80FF_FFFF, 0x3F00_0000),
    torch.bfloat16: Form(16, 0x80FF, 0x3F00),
    torch.float16: Form(16, 0x87FF, 0x3800),
    torch.float8_e4m3fn: Form(8, 0x8F, 0x30),
    torch.int8: Form(8, 0xFF, 0),
}


class ChangedWord(NamedTuple):
    """One 64-bit word of an operand that is not what was written; all as unsigned."""

    offset_bytes: int
    expected: int
    actual: int

    def __str__(self) -> str:
        flipped = self.expected ^ self.actual
        return f"byte {self.offset_bytes:#x}: {self.expected:#018x} written, {self.actual:#018x} read, {flipped:#x} flipped"


class Changed(NamedTuple):
    """All words of an operand that changed, counted, and the first ones."""

    wrong: int
    listed: tuple[ChangedWord, ...]


def operand_pattern(kind: Any, seed: int) -> Pattern:
    """The words of an operand of the torch type `kind`."""
    form = FORMS[kind]
    lanes = ALL_BITS // ((1 << form.bits) - 1)
    return Pattern(f"operand {kind}", HASH, seed=seed, keep=lanes * form.keep, flip=lanes * form.flip)


def operand(shape: tuple[int, int], kind: Any, seed: int, device: str) -> Any:
    """A matrix of the torch type `kind`, the same on every device and in every run."""
    made = torch.empty(shape, dtype=kind, device=device)
    words = as_words(made)
    words.copy_(_expected(kind, seed, words.numel(), device))
    return made


def verify_operand(made: Any, seed: int) -> Changed:
    """Whether an operand still is what `operand` made; waits for the device."""
    words = as_words(made)
    expected = _expected(made.dtype, seed, words.numel(), str(made.device))
    places = (words != expected).nonzero().flatten()
    listed = tuple(
        ChangedWord(place * 8, int(expected[place]) & ALL_BITS, int(words[place]) & ALL_BITS)
        for place in places[:LISTED].tolist()
    )
    return Changed(places.numel(), listed)


def _expected(kind: Any, seed: int, words: int, device: str) -> Any:
    pattern = operand_pattern(kind, seed)
    made = hashed_words(pattern.seed, words, device)
    return made.bitwise_and_(signed(pattern.keep)).bitwise_xor_(signed(pattern.flip))
