"""A matrix product of our own with one fixed configuration, independent of a library's heuristics.

Each tile of the output is one program, and a program can say which multiprocessor (SM) it ran on: so what is wrong
in a tile has a name on the chip. Sizes are multiples of the tile; operands are row-major bf16 or fp16.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from preflight.kernels.tensor_digests import asks_multiprocessor, compute_block_digests, view_as_int64

TILE, DEPTH = 128, 64
NOT_KNOWN = -1
# fp32 sums of exact products, in another order than the library's: both round once to the output's fraction.
FRACTION_BITS = {torch.bfloat16: 7, torch.float16: 10}


class Disagreement(NamedTuple):
    """One element on which the library and our product disagree, with the fp64 value.

    `sm` is the multiprocessor that computed our own tile, -1 where it is not known.
    """

    row: int
    column: int
    library: float
    own: float
    tile: int
    sm: int
    right: float

    @property
    def ours_is_wrong(self) -> bool:
        """Whether the library is nearer to the true value: then our product is wrong, on `sm`. NaN is never near."""
        ours, theirs = abs(self.own - self.right), abs(self.library - self.right)
        return not math.isnan(theirs) and not ours <= theirs

    def __str__(self) -> str:
        where = f"SM {self.sm}" if self.sm != NOT_KNOWN else "SM unknown"
        return (
            f"[{self.row}, {self.column}]: library {self.library:g}, own {self.own:g} (own tile {self.tile} on {where}), "
            f"{self.right:g} in fp64: {'ours' if self.ours_is_wrong else 'the library'} is wrong"
        )


class TileCounts(NamedTuple):
    """What one multiprocessor computed while tiles were repeated, in tiles: all, and those that came out differently."""

    computed: int
    wrong: int


@triton.jit
def product_kernel(
    left, right, output, sms, size_k, size_n, first, TILE: tl.constexpr, DEPTH: tl.constexpr, ASK_SM: tl.constexpr
):
    """output[m, n] = left[m, k] @ right[k, n]; int32 sms[tile]: where each tile was computed, if `ASK_SM`.

    The first program has the tile `first`, so that a tile can be sent to another multiprocessor.
    """
    across = size_n // TILE
    tile = ((tl.program_id(0) + first) % tl.num_programs(0)).to(tl.int32)
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


def compute_own_product(
    left: Any, right: Any, tile: int = TILE, depth: int = DEPTH, first: int = 0, *, ask_sm: bool | None = None
) -> tuple[Any, Any]:
    """``left @ right`` in the operands' type, and int32 sms[tiles]; ValueError if the sizes don't fit the tile.

    `first` is the tile that is given out first; the bits do not depend on it. Multiprocessors are asked for on a GPU.
    """
    (m, k), n = left.shape, right.shape[1]
    if m % tile or n % tile or k % depth:
        raise ValueError(f"the Triton matmul takes multiples of {tile} x {depth} x {tile}, not {m} x {k} x {n}")
    output = torch.empty((m, n), dtype=left.dtype, device=left.device)
    tiles = (m // tile) * (n // tile)
    sms = torch.full((tiles,), NOT_KNOWN, dtype=torch.int32, device=left.device)
    ask_sm = asks_multiprocessor(left) if ask_sm is None else ask_sm
    product_kernel[(tiles,)](left, right, output, sms, k, n, first, TILE=tile, DEPTH=depth, ASK_SM=ask_sm)
    return output, sms


def find_disagreements(
    library: Any, left: Any, right: Any, tile: int = TILE, most: int = 8
) -> tuple[int, list[Disagreement]]:
    """On how many elements the library's output is further from ours than rounding explains, and the first ones."""
    return compare_with_own_product(library, left, right, tile, most)[:2]


def compare_with_own_product(
    library: Any, left: Any, right: Any, tile: int = TILE, most: int = 8
) -> tuple[int, list[Disagreement], float]:
    """The same, and the largest difference as a share of the allowed one.

    Allowed: 2 units in the last place of the larger one; and for the different order of sums what both may cut off, a
    unit of 2^-23 of a sum's usual size every 8 products. NaN and infinity agree with nothing.
    """
    own, sms = compute_own_product(left, right, tile, min(DEPTH, left.shape[1]))
    k = left.shape[1]
    size = float(left.float().square().mean() * right.float().square().mean() * k) ** 0.5
    slack = size * (k / 8) * 2.0**-22
    ours, theirs = own.float(), library.float()
    allowed = torch.maximum(ours.abs(), theirs.abs()) * 2.0 ** (1 - FRACTION_BITS[library.dtype]) + slack
    away = (ours - theirs).abs()
    wrong = ~(away <= allowed) | ~theirs.isfinite()
    across = library.shape[1] // tile
    listed = []
    for row, column in wrong.nonzero()[:most].tolist():
        at = (row // tile) * across + column // tile
        true = float(left[row].double() @ right[:, column].double())
        both = float(theirs[row, column]), float(ours[row, column])
        listed.append(Disagreement(row, column, *both, at, int(sms[at]), true))
    return int(wrong.sum()), listed, float((away / allowed).max())


def count_tiles_by_multiprocessor(left: Any, right: Any, repeats: int, tile: int = TILE) -> dict[int, TileCounts]:
    """Repeat our product with a new assignment of tiles each time; returns each multiprocessor's tiles.

    A tile is wrong where its bits are not those that it had most often. Empty where multiprocessors are not known.
    """
    tiles = (left.shape[0] // tile) * (right.shape[1] // tile)
    made, places = [], []
    for repeat in range(repeats):
        output, sms = compute_own_product(left, right, tile, min(DEPTH, left.shape[1]), first=repeat * tiles // repeats)
        made.append(_digests_of_tiles(output, tile))
        places.append(sms)
    digests, where = torch.stack(made), torch.stack(places)
    return count_wrong_tiles((digests != digests.mode(0).values).tolist(), where.tolist())


def count_wrong_tiles(wrong: list[list[bool]], sms: list[list[int]]) -> dict[int, TileCounts]:
    """Wrong tiles by multiprocessor, from where each tile was computed in each repeat."""
    counted: dict[int, TileCounts] = {}
    for bad_row, sm_row in zip(wrong, sms, strict=True):
        for bad, sm in zip(bad_row, sm_row, strict=True):
            if sm != NOT_KNOWN:
                computed, so_far = counted.get(sm, TileCounts(0, 0))
                counted[sm] = TileCounts(computed + 1, so_far + bad)
    return counted


def _digests_of_tiles(output: Any, tile: int) -> Any:
    """One digest for the bits of each tile, as int64[tiles]."""
    rows, columns = output.shape
    apart = output.view(rows // tile, tile, columns // tile, tile).transpose(1, 2).contiguous()
    return compute_block_digests(view_as_int64(apart), tile * tile * output.element_size() // 8)
