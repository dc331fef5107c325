"""Special functions on a fixed set of numbers: separate units beside the multipliers, and their library code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from preflight.kernels.memory_errors import Errors
from preflight.kernels.operands import build_operand, verify_operand
from preflight.kernels.output_elements import WrongElement, find_wrong_elements
from preflight.kernels.tensor_digests import OutputDigests

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": torch.exp,
    "log": lambda x: torch.log(x.abs()),
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "rsqrt": lambda x: torch.rsqrt(x.abs()),
    "reciprocal": torch.reciprocal,
    "erf": torch.erf,
}
EPSILON = 2.0**-24
ALLOWED = 8 * EPSILON  # documented errors of fp32 are up to 2 units in the last place, which is 4 of these at most
LEAST = 2.0**-126  # smaller values may be flushed to zero
LARGEST = torch.finfo(torch.float32).max


class FunctionResult(NamedTuple):
    """One function: its digest, the repeats that differed and where, how many values are wrong beside fp64, and its numbers.

    `numbers` tells of words of the numbers that are not what was written.
    """

    name: str
    digest: str
    differing: list[int]
    places: list[WrongElement]
    wrong: int
    first: str
    numbers: Errors


def verify_function(
    name: str,
    size: int,
    repeats: int,
    seed: int,
    device: str,
    fault: Callable[[int, Any], None],
    *,
    wide: bool = False,
    harm: Callable[[Any], None] | None = None,
) -> FunctionResult:
    """Compute one of `FUNCTIONS` of size² numbers `repeats` times; every output is digested, the last compared with fp64.

    `harm` is done to the numbers before they are used. They are verified afterwards.
    """
    numbers = build_operand((size, size), torch.float32, seed, device, wide=wide)
    if harm is not None:
        harm(numbers)
    output = FUNCTIONS[name](numbers)
    digests = OutputDigests(output, repeats)
    for repeat in range(repeats):
        output = FUNCTIONS[name](numbers)
        fault(repeat, output)
        digests.add(repeat, output)
    wrong, true = compare_with_double(name, numbers, output)
    first = ""
    for row, column in wrong.nonzero()[:1].tolist():
        first = f"{name}({float(numbers[row, column])!r}) = {float(output[row, column])!r}, not {float(true[row, column])!r}"
    differing = digests.differing_repeats()
    places = find_wrong_elements(digests, FUNCTIONS[name](numbers)) if differing else []
    errors = verify_operand(numbers, seed, wide=wide)
    return FunctionResult(name, digests.read()[0], differing, places, int(wrong.sum()), first, errors)


def compare_with_double(name: str, numbers: Any, output: Any) -> tuple[Any, Any]:
    """Which values are wrong beside double precision, and what they ought to be.

    They may be off by `ALLOWED` of the true value, and by what rounding the argument once would change: that is more near a zero of
    the function, and where large arguments go round many times. What is too large for fp32 has to be infinite.
    """
    exact = numbers.double()
    true = FUNCTIONS[name](exact)
    moved = FUNCTIONS[name](exact.mul_(1 + EPSILON)).sub_(true).abs_()
    beyond = true.abs() > LARGEST
    allowed = moved.masked_fill_(beyond, 0.0).add_(true.abs(), alpha=ALLOWED).add_(LEAST)
    right = (output.double() - true).abs_() <= allowed
    infinite = output.isinf() & (output.sign() == true.sign())
    return torch.where(beyond, infinite, right).logical_not_(), true
