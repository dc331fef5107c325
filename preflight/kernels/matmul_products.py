"""Matrix products through torch's library, in every type the device has, with every output digested.

The same operands give the same bits on the same chip, library and number of SMs. With Triton, the digest of one output is
made on a second stream while the next product runs, so that checking costs next to nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from preflight.kernels.arithmetic_faults import no_fault
from preflight.kernels.block_scales import scale_operand
from preflight.kernels.memory_errors import Errors
from preflight.kernels.operands import E8M0, FP4, build_operand, verify_operand
from preflight.kernels.output_elements import WrongElement, find_wrong_elements
from preflight.kernels.tensor_digests import OutputDigests

BUFFERS = 2
PLACES_LISTED = 8
# The compute capability since which a GPU supports the type; before, torch computes something else under the same name.
CAPABILITIES = {
    "bf16": (8, 0),
    "tf32": (8, 0),
    "fp8": (8, 9),
    "int8": (7, 5),
    "mxfp8": (10, 0),
    "nvfp4": (10, 0),
}
# How torch's release, its build, and cuBLAS say that they lack a product.
REFUSALS = ("NOT_SUPPORTED", "not implemented for", "is only supported for CUDA", "Invalid scaling configuration")


class ProductKind(NamedTuple):
    """A type of product: its name, the operands' torch type and the output's.

    Where `block` is not 0, so many elements in the direction of the depth share a scale of the torch type `scales`.
    """

    name: str
    operands: Any
    output: Any
    block: int = 0
    scales: Any = None

    @property
    def by_scaled_mm(self) -> bool:
        """Whether torch computes it by `_scaled_mm`, whose signature differs between releases."""
        return self.name == "fp8" or self.block > 0


KINDS = (
    ProductKind("bf16", torch.bfloat16, torch.bfloat16),
    ProductKind("fp16", torch.float16, torch.float16),
    ProductKind("tf32", torch.float32, torch.float32),
    ProductKind("fp32", torch.float32, torch.float32),
    ProductKind("fp8", torch.float8_e4m3fn, torch.bfloat16),
    ProductKind("mxfp8", torch.float8_e4m3fn, torch.bfloat16, 32, E8M0),
    ProductKind("nvfp4", FP4, torch.bfloat16, 16, torch.float8_e4m3fn),
    ProductKind("int8", torch.int8, torch.int32),
    ProductKind("fp64", torch.float64, torch.float64),
)


class RepeatResult(NamedTuple):
    """What repeating one product showed. `digest` is that of the first; `wrong` what differed in the blocks set aside.

    `output` is that of the last repeat, still as it was digested unless something was `differing`.
    `seconds` is how long the products took, without the digests where these do not run beside them.
    """

    digest: str
    repeats: int
    differing: list[int]
    wrong: list[WrongElement]
    output: Any
    seconds: float

    @property
    def places(self) -> list[str]:
        """What differed, in words; empty if nothing did."""
        if self.differing and not self.wrong:
            return ["a later matmul has the differing bits too: repeat 0 is the one that differs"]
        return [str(each) for each in self.wrong[:PLACES_LISTED]]


def explain_missing_kind(kind: ProductKind, device: str) -> str:
    """Why this device lacks this product, as text; empty if it should support it."""
    if not device.startswith("cuda"):
        return f"CPUs do not support {kind.name.upper()}" if kind.name == "tf32" or kind.block else ""
    wanted, here = CAPABILITIES.get(kind.name, (0, 0)), torch.cuda.get_device_capability(device)
    return f"compute capability {here[0]}.{here[1]} has none" if here < wanted else ""


def is_refusal(error: Exception) -> bool:
    """Whether the library says that it lacks this product. Any other message is a failure."""
    return isinstance(error, NotImplementedError) or any(words in str(error) for words in REFUSALS)


class MatmulWork:
    """One product of size³ that can be done again and again. `run(output)` returns before the device has done it.

    Raises RuntimeError, NotImplementedError or ValueError, in the library's words, where the device has no such product.
    """

    def __init__(self, kind: ProductKind, size: int, seed: int, device: str) -> None:
        self.kind, self.size, self.seed, self.device = kind, size, seed, device
        if kind.block and None in kind:
            raise NotImplementedError(f"torch {torch.__version__} has no such type")
        shape = (size, size // 2 if kind.operands == FP4 else size)
        self.left = build_operand(shape, kind.operands, seed, device)
        self.right = build_operand(shape, kind.operands, seed + 1, device)
        blocks = (size, size // kind.block) if kind.block else (0, 0)
        self.scales = [
            build_operand(blocks, kind.scales, seed + each, device, scale=True) for each in (2, 3) if kind.block
        ]
        self._one = torch.ones((), dtype=torch.float32, device=device)
        self.run(self.buffer())

    def buffer(self) -> Any:
        """A place for an output."""
        return torch.empty((self.size, self.size), dtype=self.kind.output, device=self.device)

    @property
    def factor(self) -> Any:
        """The right operand as it is multiplied: narrow types by columns, which is how every device takes them."""
        return self.right.t() if self.kind.operands.itemsize == 1 else self.right

    @property
    def numbers(self) -> tuple[Any, Any]:
        """Left and right, scaled, as any matrix product takes them."""
        if not self.kind.block:
            return self.left, self.factor
        left, right = map(scale_operand, (self.left, self.right), self.scales)
        return left, right.t()

    def run(self, output: Any) -> None:
        """Put the product into `output`."""
        if self.kind.by_scaled_mm:
            scales = self.scales or (self._one, self._one)
            torch._scaled_mm(self.left, self.factor, *scales, out_dtype=self.kind.output, out=output)  # noqa: SLF001 - torch has no other name for it
        elif self.kind.name == "int8":
            torch._int_mm(self.left, self.factor, out=output)  # noqa: SLF001 - torch has no other name for it
        else:
            with pin_precision(tensor_float=self.kind.name == "tf32"):
                torch.mm(self.left, self.factor, out=output)

    def operand_errors(self) -> dict[str, Errors]:
        """The modified ones of `left`, `right` and their scales; waits for the device."""
        made = zip(("left", "right", "left scale", "right scale"), (self.left, self.right, *self.scales), strict=False)
        verified = {
            name: verify_operand(each, self.seed + number, scale=number > 1) for number, (name, each) in enumerate(made)
        }
        return {name: errors for name, errors in verified.items() if errors.wrong}


def repeat_product(
    work: MatmulWork, repeats: int, fault: Callable[[int, Any], None] = no_fault, *, overlap: bool = True
) -> RepeatResult:
    """Do `work` again and again and digest every output. `fault(repeat, output)` plays a broken multiplier."""
    buffers = [work.buffer() for _ in range(BUFFERS)]
    digests = OutputDigests(buffers[0], repeats)
    if not work.device.startswith("cuda"):
        seconds = _time_on_host(work, repeats, fault, buffers, digests)
    else:
        _warm_up(buffers[0])
        together = overlap and digests.by_triton
        seconds = (_time_overlapped if together else _time_in_turn)(work, repeats, fault, buffers, digests)
    differing = digests.differing_repeats()
    wrong: list[WrongElement] = []
    if differing:
        work.run(buffers[0])
        wrong = find_wrong_elements(digests, buffers[0])
    return RepeatResult(digests.read()[0], repeats, differing, wrong, buffers[(repeats - 1) % BUFFERS], seconds)


def _time_on_host(
    work: MatmulWork, repeats: int, fault: Callable[[int, Any], None], buffers: list[Any], digests: OutputDigests
) -> float:
    """A processor's way: products and digests in turn. Seconds of the products."""
    seconds = 0.0
    for repeat in range(repeats):
        output = buffers[repeat % BUFFERS]
        began = time.perf_counter()
        work.run(output)
        fault(repeat, output)
        seconds += time.perf_counter() - began
        digests.add(repeat, output)
    return seconds


def _warm_up(output: Any) -> None:
    """Digest once without and once with comparing, so that nothing is compiled while time is taken."""
    tried = OutputDigests(output, 2)
    for repeat in range(2):
        tried.add(repeat, output)
    torch.cuda.synchronize(output.device)


def _time_in_turn(
    work: MatmulWork, repeats: int, fault: Callable[[int, Any], None], buffers: list[Any], digests: OutputDigests
) -> float:
    """Products and digests in turn on one stream. Seconds of the products."""
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    with torch.cuda.device(work.device):
        for repeat, (began, ended) in enumerate(marks):
            output = buffers[repeat % BUFFERS]
            began.record()
            work.run(output)
            fault(repeat, output)
            ended.record()
            digests.add(repeat, output)
        torch.cuda.synchronize(work.device)
    return float(sum(began.elapsed_time(ended) for began, ended in marks)) / 1e3


def _time_overlapped(
    work: MatmulWork, repeats: int, fault: Callable[[int, Any], None], buffers: list[Any], digests: OutputDigests
) -> float:
    """Products on this stream, digests on another; a buffer is written again only when it has been digested.

    Seconds from the first product's beginning to the last one's end.
    """
    products, other = torch.cuda.current_stream(work.device), torch.cuda.Stream(work.device)
    began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    other.wait_stream(products)
    read = [torch.cuda.Event() for _ in buffers]
    began.record(products)
    for repeat in range(repeats):
        slot = repeat % BUFFERS
        if repeat >= BUFFERS:
            products.wait_event(read[slot])
        work.run(buffers[slot])
        fault(repeat, buffers[slot])
        other.wait_stream(products)
        with torch.cuda.stream(other):
            digests.add(repeat, buffers[slot])
            read[slot].record(other)
    ended.record(products)
    products.wait_stream(other)
    torch.cuda.synchronize(work.device)
    return float(began.elapsed_time(ended)) / 1e3


@contextlib.contextmanager
def pin_precision(*, tensor_float: bool) -> Iterator[None]:
    """Sums in fp32, and fp32 products on the tensor cores (tf32) or not; all as it was afterwards."""
    settings = torch.backends.cuda.matmul
    # torch 2.9 and later have a new name for it, and warn of the old one.
    new_name = hasattr(settings, "fp32_precision")
    wanted: dict[str, Any] = {
        "allow_bf16_reduced_precision_reduction": False,
        "allow_fp16_reduced_precision_reduction": False,
        **({"fp32_precision": "tf32" if tensor_float else "ieee"} if new_name else {"allow_tf32": tensor_float}),
    }
    before = {name: getattr(settings, name) for name in wanted}
    try:
        for name, value in wanted.items():
            setattr(settings, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(settings, name, value)
