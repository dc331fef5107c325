"""A matrix product of our own, of one fixed configuration: a second opinion that no library's heuristics change.

Each tile of the output is one program, and a program can say which multiprocessor (SM) it ran on: so what is wrong
in a tile has a name on the chip. Sizes are multiples of the tile; operands are row-major bf16 or fp16.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

TILE, DEPTH = 128, 64
NOT_KNOWN = -1
# fp32 sums of exact products, in another order than the library's: both round once to the output's fraction.
FRACTION_BITS = {torch.bfloat16: 7, torch.float16: 10}


class Disagreement(NamedTuple):
    """One element on which library and own product disagree; `sm` is -1 where it is not known."""

    row: int
    column: int
    library: float
    own: float
    tile: int
    sm: int

    def __str__(self) -> str:
        where = f"SM {self.sm}" if self.sm != NOT_KNOWN else "SM not known"
        return (
            f"[{self.row}, {self.column}]: library {self.library:g}, own {self.own:g} (own tile {self.tile} on {where})"
        )


@triton.jit
def product_kernel(
    left, right, output, sms, size_k, size_n, TILE: tl.constexpr, DEPTH: tl.constexpr, ASK_SM: tl.constexpr
):
    """output[m, n] = left[m, k] @ right[k, n]; int32 sms[tile]: where each tile was computed, if `ASK_SM`."""
    across = size_n // TILE
    tile = tl.program_id(0)
    rows = ((tile // across) * TILE + tl.arange(0, TILE)).to(tl.int64)
    columns = ((tile % across) * TILE + tl.arange(0, TILE)).to(tl.int64)
    inner = tl.arange(0, DEPTH).to(tl.int64)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for depth in range(0, size_k, DEPTH):
        a = tl.load(left + rows[:, None] * size_k + (inner[None, :] + depth))
        b = tl.load(right + (inner[:, None] + depth) * size_n + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(output + rows[:, None] * size_n + columns[None, :], total.to(output.dtype.element_ty))
    if ASK_SM:
        sm = tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
        tl.store(sms + tile, sm)


def product(left: Any, right: Any, tile: int = TILE, depth: int = DEPTH) -> tuple[Any, Any]:
    """``left @ right`` in the operands' type, and int32 sms[tiles]; ValueError if the sizes don't fit the tile."""
    (m, k), n = left.shape, right.shape[1]
    if m % tile or n % tile or k % depth:
        raise ValueError(f"our product takes multiples of {tile} x {depth} x {tile}, not {m} x {k} x {n}")
    output = torch.empty((m, n), dtype=left.dtype, device=left.device)
    tiles = (m // tile) * (n // tile)
    sms = torch.full((tiles,), NOT_KNOWN, dtype=torch.int32, device=left.device)
    product_kernel[(tiles,)](left, right, output, sms, k, n, TILE=tile, DEPTH=depth, ASK_SM=left.is_cuda)
    return output, sms


def disagreements(
    library: Any, left: Any, right: Any, tile: int = TILE, most: int = 8
) -> tuple[int, list[Disagreement]]:
    """On how many elements the library's output is further from ours than rounding explains, and the first ones.

    Allowed: 2 units in the last place of the larger one; and for the different order of sums what both may cut off, a
    unit of 2^-23 of a sum's usual size every 8 products. NaN and infinity agree with nothing.
    """
    own, sms = product(left, right, tile, min(DEPTH, left.shape[1]))
    k = left.shape[1]
    size = float(left.float().square().mean() * right.float().square().mean() * k) ** 0.5
    slack = size * (k / 8) * 2.0**-22
    ours, theirs = own.float(), library.float()
    allowed = torch.maximum(ours.abs(), theirs.abs()) * 2.0 ** (1 - FRACTION_BITS[library.dtype]) + slack
    wrong = ~((ours - theirs).abs() <= allowed) | ~theirs.isfinite()
    across = library.shape[1] // tile
    listed = []
    for row, column in wrong.nonzero()[:most].tolist():
        at = (row // tile) * across + column // tile
        listed.append(Disagreement(row, column, float(theirs[row, column]), float(ours[row, column]), at, int(sms[at])))
    return int(wrong.sum()), listed
