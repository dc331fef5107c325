"""Special functions on a fixed grid of numbers: the units beside the multipliers, and the code that uses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from preflight.kernels.digest import Digests
from preflight.kernels.elements import Wrong, wrong_elements
from preflight.kernels.operands import operand

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
# Of fp32 against fp64: documented errors are up to 4 units of 2^-24; near a zero of the function, of the size of 1.
ALLOWED = 8 * 2.0**-24


class Answers(NamedTuple):
    """One function: its digest, the repeats that differed and where, and how many values are wrong beside fp64."""

    name: str
    digest: str
    differing: list[int]
    places: list[Wrong]
    wrong: int
    first: str


def check(name: str, size: int, repeats: int, seed: int, device: str, fault: Callable[[int, Any], None]) -> Answers:
    """Compute one of `FUNCTIONS` of size² numbers `repeats` times; every output is digested, the last compared with fp64."""
    numbers = operand((size, size), torch.float32, seed, device)
    output = FUNCTIONS[name](numbers)
    digests = Digests(output, repeats)
    for repeat in range(repeats):
        output = FUNCTIONS[name](numbers)
        fault(repeat, output)
        digests.add(repeat, output)
    true = FUNCTIONS[name](numbers.double())
    wrong = ~((output.double() - true).abs() <= ALLOWED * true.abs().clamp(min=1.0))
    first = ""
    for row, column in wrong.nonzero()[:1].tolist():
        first = f"{name}({float(numbers[row, column])!r}) = {float(output[row, column])!r}, not {float(true[row, column])!r}"
    differing = digests.differing_repeats()
    places = wrong_elements(digests, FUNCTIONS[name](numbers)) if differing else []
    return Answers(name, digests.read()[0], differing, places, int(wrong.sum()), first)
