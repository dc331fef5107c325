"""Checksums of a product (ABFT): verification without a reference result.

The column sums of A·B equal the column sums of A times B, and likewise for rows: n² work for n³. A wrong element shows in
its column *and* its row, which gives its position. The precision is limited by rounding: every output element was
rounded, and an error below the spread of a sum of n roundings is not detected. `triton_matmul` detects smaller errors.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from preflight.kernels.operands import FP4

SIGMAS = 10.0  # a normal value this far out never occurs, so that healthy GPUs do not fail
FRACTION_BITS = {torch.bfloat16: 7, torch.float16: 10, torch.float32: 23, torch.float64: 52}


class SummingRule(NamedTuple):
    """How a type's products are summed: bits kept at each step, products per step, products until summing continues in fp32."""

    bits: int
    step: int
    span: int


_LONG = 1 << 62
_FP32 = SummingRule(23, 4, _LONG)
# Hopper keeps some 13 bits of fp8 sums; the library adds them up in fp32 every 128 products. What Blackwell keeps of
# block-scaled sums has not been measured; the limit is the same.
_FP8 = SummingRule(13, 32, 128)
SUMMING: dict[Any, SummingRule] = {torch.float64: SummingRule(52, 1, _LONG), torch.float8_e4m3fn: _FP8, FP4: _FP8}
TENSOR_FLOAT_BITS = 10


class ChecksumResult(NamedTuple):
    """Rows and columns with wrong sums, and the largest deviation over the tolerance (1 is the limit)."""

    rows: list[int]
    columns: list[int]
    excess: float

    @property
    def wrong(self) -> bool:
        """Whether any sum is wrong."""
        return bool(self.rows or self.columns)


def verify_checksums(
    left: Any, right: Any, output: Any, *, kind: Any = None, tensor_float: bool = False
) -> ChecksumResult:
    """Compare the row and column sums of `output` with those its operands promise; int8 must agree exactly.

    Our own sums are fp64. Allowed is `SIGMAS` times the scatter of a sum of n elements that err independently, each by
    its rounding to the output's type (evenly spread over one unit in the last place) and by what summing cuts off, at
    worst in one direction at every step of that element. With `tensor_float`, operands were cut to ten bits before.
    `kind` is the torch type that was multiplied if it is not that of `left`.
    """
    exact = not output.dtype.is_floating_point
    a, b, c = (matrix.double() for matrix in (left, right, output))
    k = a.shape[1]
    size = float((a.square().mean() * b.square().mean() * k).sqrt())  # the typical size of an element
    error = 0.0 if exact else size * summing_error(kind or left.dtype, k, tensor_float=tensor_float)
    rounding = 0.0 if exact else 2.0 ** -FRACTION_BITS[output.dtype] / 12**0.5
    kept = c.clamp(-8 * size, 8 * size)  # a wrong element must not increase the tolerance
    found: list[list[int]] = []
    excess = 0.0
    for axis, promised in ((1, a @ b.sum(1)), (0, a.sum(0) @ b)):
        scatter = (kept.square().sum(axis) * rounding**2 + error**2 * c.shape[axis]).sqrt()
        allowed = SIGMAS * scatter + 2.0**-40 * size * c.shape[axis]  # the last term is for our own sums
        difference = (c.sum(axis) - promised).abs()
        found.append((~(difference <= allowed)).nonzero().flatten().tolist())
        excess = max(excess, float((difference / allowed).nan_to_num(nan=float("inf")).max()))
    return ChecksumResult(found[0], found[1], excess)


def summing_error(kind: Any, products: int, *, tensor_float: bool = False) -> float:
    """The error of summing this many products of the torch type `kind`, as a share of a sum's usual size."""
    bits, step, span = SUMMING.get(kind, _FP32)
    cut = (products / step) * (min(products, span) / products) ** 0.5 * 2.0**-bits
    return math.hypot(cut, 2.0**-TENSOR_FLOAT_BITS if tensor_float else 0.0)
