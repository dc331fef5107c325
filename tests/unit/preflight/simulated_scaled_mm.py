"""`torch._scaled_mm` with block scales, which torch has for GPUs only, on the processor.

Written from the definitions, without the product's own decoding: a table of fp4's numbers, and the address that cuBLAS
documents for each scale. As strict as torch about types, sizes and layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

FP4_NUMBERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def list_numbers(operand: Any) -> Any:
    """The elements of an operand in double precision, without scales."""
    if str(operand.dtype) != "torch.float4_e2m1fn_x2":
        return operand.double()
    packed = operand.view(torch.uint8).long()
    table = torch.tensor(FP4_NUMBERS, dtype=torch.float64)
    return torch.stack((table[packed % 16], table[packed // 16]), -1).flatten(1)


def find_scale_address(row: Any, block: Any, blocks: int) -> Any:
    """Where cuBLAS finds the scale of a row's block: tiles of 128 rows and 4 blocks are 512 bytes each."""
    tile = row // 128 * (blocks // 4) + block // 4
    return tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4


def dequantise(operand: Any, scales: Any, block: int) -> Any:
    """The operand with its scales, in double precision."""
    numbers = list_numbers(operand)
    rows, blocks = numbers.shape[0], numbers.shape[1] // block
    address = find_scale_address(torch.arange(rows)[:, None], torch.arange(blocks)[None], blocks)
    return numbers * scales.double().flatten()[address].repeat_interleave(block, 1)


def build_scaled_mm() -> Callable[..., Any]:
    """A stand-in for `torch._scaled_mm`, which computes what torch's own refuses on the processor."""
    own = torch._scaled_mm

    def scaled_mm(left: Any, right: Any, scale_a: Any, scale_b: Any, *, out_dtype: Any, out: Any) -> Any:
        if scale_a.numel() == 1:
            return own(left, right, scale_a, scale_b, out_dtype=out_dtype, out=out)
        with torch._C.DisableTorchFunction():
            block = {
                (torch.float8_e4m3fn, torch.float8_e8m0fnu): 32,
                (torch.float4_e2m1fn_x2, torch.float8_e4m3fn): 16,
            }[left.dtype, scale_a.dtype]
            across = right.t()  # the other layout is refused for fp4
            depth = left.shape[1] * (2 if block == 16 else 1)
            sizes = [side.shape[0] * depth // block for side in (left, across)]
            if sizes != [scale_a.numel(), scale_b.numel()] or not across.is_contiguous() or out_dtype != out.dtype:
                raise ValueError("Invalid scaling configuration.")
            exact = dequantise(left, scale_a, block).float() @ dequantise(across, scale_b, block).float().t()
            out.copy_(exact)
            return out

    return scaled_mm
