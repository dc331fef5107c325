"""Matrix products through torch's library, in every type the device has, with every output digested.

The same operands give the same bits on the same chip, library and number of SMs. The digest of one output is made on
a second stream while the next product runs, so that checking costs next to nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from preflight.kernels.digest import Digests, as_words
from preflight.kernels.memory import Errors
from preflight.kernels.operands import operand, verify_operand
from preflight.kernels.patterns import ALL_BITS

BUFFERS = 2
PLACES_LISTED = 8


class Kind(NamedTuple):
    """A type of product: its name, the operands' torch type and the output's."""

    name: str
    operands: Any
    output: Any


KINDS = (
    Kind("bf16", torch.bfloat16, torch.bfloat16),
    Kind("fp16", torch.float16, torch.float16),
    Kind("tf32", torch.float32, torch.float32),
    Kind("fp8", torch.float8_e4m3fn, torch.bfloat16),
    Kind("int8", torch.int8, torch.int32),
    Kind("fp64", torch.float64, torch.float64),
)


class Repeats(NamedTuple):
    """What repeating one product showed. `digest` is that of the first; `places` say what differed where."""

    digest: str
    repeats: int
    differing: list[int]
    places: list[str]


class Work:
    """One product of size³ that can be done again and again. `run(output)` returns before the device has done it.

    Raises RuntimeError or NotImplementedError, in the library's words, where the device has no such product.
    """

    def __init__(self, kind: Kind, size: int, seed: int, device: str) -> None:
        self.kind, self.size, self.seed, self.device = kind, size, seed, device
        self.left = operand((size, size), kind.operands, seed, device)
        self.right = operand((size, size), kind.operands, seed + 1, device)
        self._one = torch.ones((), dtype=torch.float32, device=device)
        self.run(self.buffer())

    def buffer(self) -> Any:
        """A place for an output."""
        return torch.empty((self.size, self.size), dtype=self.kind.output, device=self.device)

    @property
    def factor(self) -> Any:
        """The right operand as it is multiplied: narrow types by columns, which is how every device takes them."""
        return self.right.t() if self.kind.operands.itemsize == 1 else self.right

    def run(self, output: Any) -> None:
        """Put the product into `output`."""
        if self.kind.name == "fp8":
            torch._scaled_mm(  # noqa: SLF001 - torch has no other name for it
                self.left, self.factor, self._one, self._one, out_dtype=self.kind.output, out=output
            )
        elif self.kind.name == "int8":
            torch._int_mm(self.left, self.factor, out=output)  # noqa: SLF001 - torch has no other name for it
        else:
            with precision(tensor_float=self.kind.name == "tf32"):
                torch.mm(self.left, self.factor, out=output)

    def operand_errors(self) -> list[Errors]:
        """The operands that are no longer what was written, left first; waits for the device."""
        both = (verify_operand(self.left, self.seed), verify_operand(self.right, self.seed + 1))
        return [errors for errors in both if errors.wrong]


def no_fault(repeat: int, output: Any) -> None:
    """Nothing is done to the output of any repeat."""


def repeated(
    work: Work, repeats: int, fault: Callable[[int, Any], None] = no_fault, *, overlap: bool = True
) -> Repeats:
    """Do `work` again and again and digest every output. `fault(repeat, output)` plays a broken multiplier."""
    buffers = [work.buffer() for _ in range(BUFFERS)]
    digests = Digests(buffers[0], repeats)
    if work.device.startswith("cuda") and overlap:
        _overlapped(work, repeats, fault, buffers, digests)
    else:
        for repeat in range(repeats):
            output = buffers[repeat % BUFFERS]
            work.run(output)
            fault(repeat, output)
            digests.add(repeat, output)
    differing = digests.differing_repeats()
    places = _places(work, buffers[0], digests) if differing else []
    return Repeats(digests.read()[0], repeats, differing, places)


def _overlapped(
    work: Work, repeats: int, fault: Callable[[int, Any], None], buffers: list[Any], digests: Digests
) -> None:
    """Products on this stream, digests on another; a buffer is written again only when it has been digested."""
    products, other = torch.cuda.current_stream(work.device), torch.cuda.Stream(work.device)
    other.wait_stream(products)
    read = [torch.cuda.Event() for _ in buffers]
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
    products.wait_stream(other)


def _places(work: Work, output: Any, digests: Digests) -> list[str]:
    """Element by element what differs from a product made now, in the blocks that were set aside."""
    work.run(output)
    fresh = as_words(output)
    lanes = 8 // output.element_size()
    width = 64 // lanes
    listed = []
    for repeat, block, words in digests.differing():
        first = block * digests.block_words
        wanted = [word & ALL_BITS for word in fresh[first : first + digests.block_words].tolist()]
        for number, (was, ought) in enumerate(zip(words, wanted, strict=False)):
            for lane in range(lanes) if was != ought else ():
                actual, right = (word >> lane * width & ((1 << width) - 1) for word in (was, ought))
                if actual != right:
                    row, column = divmod((first + number) * lanes + lane, work.size)
                    listed.append(
                        f"repeat {repeat} [{row}, {column}]: bits {actual:#x}, {right:#x} expected, {actual ^ right:#x} flipped"
                    )
    return listed[:PLACES_LISTED] or ["a product made afterwards has the differing bits too: repeat 0 is the odd one"]


@contextlib.contextmanager
def precision(*, tensor_float: bool) -> Iterator[None]:
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
