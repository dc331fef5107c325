"""Operands: random words shaped into numbers of any type, so that any bit of them can be verified later.

Never zeros or ones: they leave most circuits idle, and a GPU computes them 13 % faster. Every number is ±[0.5, 2),
with its sign, its fraction and the last bit of its exponent at random; int8 takes any value. *Wide* numbers, fp32 only, have four
bits of the exponent at random: one in two is ±[2^-15, 2), the others ±[2, 2^17).

Block-scaled types: fp4 is ±2, 3, 4 or 6. Scales are random in a narrow range, so that a product of depth 8192 is exact in
fp32: e8m0 is a power of two from 1/8 to 1, e4m3 lies in [0.5, 2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from preflight.kernels.memory_errors import Errors, Piece
from preflight.kernels.memory_patterns import ALL_BITS, SPLITMIX, Pattern
from preflight.kernels.tensor_digests import view_as_int64
from preflight.kernels.torch_memory import TorchWay, fill_pattern


class OperandForm(NamedTuple):
    """How random bits become numbers: in each lane of `bits`, those in `keep` stay random and `flip` is added."""

    bits: int
    keep: int
    flip: int


# Since torch 2.7 and 2.8; None before.
E8M0, FP4 = (getattr(torch, name, None) for name in ("float8_e8m0fnu", "float4_e2m1fn_x2"))

# Sign, last bit of the exponent, fraction; and the exponent that means 0.5 (fp4: 2).
FORMS: dict[Any, OperandForm] = {
    torch.float64: OperandForm(64, 0x801F_FFFF_FFFF_FFFF, 0x3FE0_0000_0000_0000),
    torch.float32: OperandForm(32, 0x80FF_FFFF, 0x3F00_0000),
    torch.bfloat16: OperandForm(16, 0x80FF, 0x3F00),
    torch.float16: OperandForm(16, 0x87FF, 0x3800),
    torch.float8_e4m3fn: OperandForm(8, 0x8F, 0x30),
    torch.int8: OperandForm(8, 0xFF, 0),
    FP4: OperandForm(8, 0xBB, 0x44),  # two numbers
}
SCALE_FORMS: dict[Any, OperandForm] = {
    torch.float8_e4m3fn: OperandForm(8, 0x0F, 0x30),
    E8M0: OperandForm(8, 0x03, 0x7C),
}

# Two numbers of fp32 in a word, the first of them large, with four bits of the exponent at random.
WIDE_KEEP, WIDE_FLIP = 0x87FF_FFFF_87FF_FFFF, 0x3800_0000_4000_0000


def build_operand_pattern(kind: Any, seed: int, *, wide: bool = False, scale: bool = False) -> Pattern:
    """The words of an operand, or of its scales, of the torch type `kind`."""
    form = (SCALE_FORMS if scale else FORMS)[kind]
    lanes = ALL_BITS // ((1 << form.bits) - 1)
    keep, flip = (WIDE_KEEP, WIDE_FLIP) if wide else (lanes * form.keep, lanes * form.flip)
    return Pattern(f"operand {kind}", SPLITMIX, seed=seed, keep=keep, flip=flip)


def build_operand(
    shape: tuple[int, int], kind: Any, seed: int, device: str, *, wide: bool = False, scale: bool = False
) -> Any:
    """A matrix of the torch type `kind`, the same on every device and in every run."""
    made = torch.empty(shape, dtype=kind, device=device)
    fill_pattern(view_as_int64(made), build_operand_pattern(kind, seed, wide=wide, scale=scale), 0)
    return made


def verify_operand(made: Any, seed: int, *, wide: bool = False, scale: bool = False) -> Errors:
    """Whether an operand is unchanged; waits for the device."""
    piece = Piece(view_as_int64(made))
    going = TorchWay().begin(build_operand_pattern(made.dtype, seed, wide=wide, scale=scale), str(made.device))
    going.launch(piece)
    return going.errors([piece])
