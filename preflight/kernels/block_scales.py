"""Block-scaled operands as numbers: each element times the scale of its block, for judges that multiply without scales.

bf16 holds these numbers exactly: their factors have two and four bits (NVFP4), or four and one (MXFP8).
"""

from __future__ import annotations

from typing import Any

import torch

from preflight.kernels.operands import FP4


def scale_operand(operand: Any, scales: Any) -> Any:
    """The scaled numbers, as bf16[rows, depth]."""
    by_row = untile_scales(scales.to(torch.bfloat16), operand.shape[0])
    numbers = _unpack_fp4(operand) if operand.dtype == FP4 else operand.to(torch.bfloat16)
    return (numbers.view(*by_row.shape, -1) * by_row.unsqueeze(2)).view(operand.shape[0], -1)


def untile_scales(scales: Any, rows: int) -> Any:
    """Scales by row and block, from cuBLAS's layout for scale factors of one dimension; `rows` is a multiple of 128.

    Tiles of 128 rows and 4 blocks lie side by side, row by row of tiles. In a tile, 16 bytes hold the blocks of the rows r,
    r + 32, r + 64 and r + 96.
    """
    return scales.view(rows // 128, -1, 32, 4, 4).permute(0, 3, 2, 1, 4).reshape(rows, -1)


def _unpack_fp4(operand: Any) -> Any:
    """Two numbers a byte, the lower half first. With the bits at their places in e4m3, a number is 1/64 of itself."""
    packed = operand.view(torch.uint8)
    halves = torch.stack((packed & 15, packed >> 4), 2)
    return ((halves & 8) << 4 | (halves & 7) << 2).view(torch.float8_e4m3fn).to(torch.bfloat16) * 64
