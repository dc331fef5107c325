"""Small fixed products through torch, and their digests.

The operands are whole numbers, arranged along the summed dimension in pairs (x, x) and (y, d - y): each pair adds x * d,
which is small, although x * y uses the full width of the multiplier. So every partial sum is exact, and the product fits
its type without rounding: the result does not depend on the algorithm, the order of the sums or the library's settings,
and a wrong bit anywhere in it is an error of the device.
"""

from __future__ import annotations

import platform
from typing import NamedTuple

import torch

from healthd.trainer.product_sampling import Digest

SIZE_ON_GPU, SIZE_ON_CPU = 1536, 128  # rows and columns: 144 blocks of 128 x 128, more than an H200 has SMs
DEPTH = 512
SHIFT = 64  # rows between the operands of two patterns: each number then meets other units
SEED = 20_261_129
X_MAX, Y_MAX = 63, 2047  # 6 and 11 bits: fp16's whole significand
SPARSE = 8  # one in so many pairs adds something: the sums stay below 2048, to which fp16 is exact


class _Factors(NamedTuple):
    narrow: torch.Tensor
    wide: torch.Tensor
    column_weights: torch.Tensor
    row_weights: torch.Tensor


def make_factors(size: int, dtype: torch.dtype, device: torch.device) -> _Factors:
    """Return the operands of all patterns, the same on every device, and the odd weights of the digest."""
    cpu, draw = torch.device("cpu"), torch.Generator("cpu").manual_seed(SEED)
    rows, pairs = size + SHIFT, DEPTH // 2

    def numbers(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=draw, dtype=torch.int32, device=cpu)

    x = numbers(-X_MAX, X_MAX + 1, rows, pairs)
    y = numbers(1 - Y_MAX, Y_MAX, rows, pairs)
    added = numbers(0, 2, rows, pairs).mul_(2).sub_(1) * (numbers(0, SPARSE, rows, pairs) == 0)
    narrow = torch.stack((x, x), dim=2).reshape(rows, DEPTH)
    wide = torch.stack((y, added - y), dim=2).reshape(rows, DEPTH)
    words = size * dtype.itemsize // 2
    return _Factors(
        narrow.to(device, dtype),
        wide.to(device, dtype),
        numbers(0, 1 << 14, words).mul_(2).add_(1).to(device),
        numbers(0, 1 << 9, size).mul_(2).add_(1).to(device, torch.int64),
    )


class _Workspace:
    """The factors on one device, and the memory for one product."""

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self._size, self._factors = size, make_factors(size, dtype, device)
        self.product = torch.empty((size, size), dtype=dtype, device=device)
        self._words = self.product.view(torch.int16)
        self._weighted = torch.empty(self._words.shape, dtype=torch.int32, device=device)
        self._rows = torch.empty(size, dtype=torch.int64, device=device)
        self.digest = torch.empty((), dtype=torch.int64, device=device)

    def compute(self, pattern: int) -> None:
        """Compute the product of a pattern and its digest: a single wrong word always changes it."""
        first = SHIFT * (pattern // 2)
        rows = slice(first, first + self._size)
        factors, narrow, wide = self._factors, self._factors.narrow[rows], self._factors.wide[rows]
        left, right = (wide, narrow) if pattern % 2 else (narrow, wide)
        with torch.no_grad():
            multiply(left, right, self.product)
            torch.mul(self._words, factors.column_weights, out=self._weighted)  # below 2**30
            torch.sum(self._weighted, 1, dtype=torch.int64, out=self._rows)
            self._rows.mul_(factors.row_weights)
            torch.sum(self._rows, 0, out=self.digest)


def multiply(left: torch.Tensor, right: torch.Tensor, product: torch.Tensor) -> None:
    """Compute left x right^T. With `out` autocast leaves the types alone."""
    torch.mm(left, right.t(), out=product)


class CpuProducts:
    """Products on the CPU, complete when `start` returns."""

    def __init__(self) -> None:
        self.platform = f"cpu {platform.machine()}, torch {torch.__version__}"
        self._work = _Workspace(SIZE_ON_CPU, torch.float32, torch.device("cpu"))

    def start(self, pattern: int) -> Digest:
        """Compute a product; its seconds count as the caller's."""
        self._work.compute(pattern)
        return Digest(_format_digest(int(self._work.digest)), 0.0)

    def read(self, product: Digest) -> Digest:
        """Return the digest."""
        return product


class CudaProducts:
    """Products on the current CUDA device, in a stream of their own that nothing waits for."""

    def __init__(self) -> None:
        index = torch.cuda.current_device()
        self._device = torch.device("cuda", index)
        known = torch.cuda.get_device_properties(index)
        software = f"torch {torch.__version__}, CUDA {torch.version.cuda or getattr(torch.version, 'hip', '')}"
        self.platform = f"{known.name}, {known.multi_processor_count} SMs, {software}"
        self._stream = torch.cuda.Stream(self._device)
        self._began, self._ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            self._work = _Workspace(SIZE_ON_GPU, torch.float16, self._device)
        self._read = torch.empty((), dtype=torch.int64, pin_memory=True)

    def start(self, pattern: int) -> torch.cuda.Event | None:
        """Queue the product and the copy of its digest to pinned memory; no synchronisation.

        None while a CUDA graph is captured, and if sums in fp16 are allowed, which would not be exact.
        """
        if torch.cuda.is_current_stream_capturing() or getattr(
            torch.backends.cuda.matmul, "allow_fp16_accumulation", False
        ):
            return None
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            self._began.record()
            self._work.compute(pattern)
            self._read.copy_(self._work.digest, non_blocking=True)
            self._ended.record()
        return self._ended

    def read(self, product: torch.cuda.Event) -> Digest | None:
        """Return the digest once the stream has come past it."""
        if not product.query():
            return None
        return Digest(_format_digest(int(self._read)), self._began.elapsed_time(product) / 1e3)


def _format_digest(value: int) -> str:
    return f"{value & (1 << 64) - 1:016x}"
