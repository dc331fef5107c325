"""Injected arithmetic faults, in the output of a product or a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from preflight.kernels.tensor_digests import view_as_int64

ONE_OUTPUT, ALL_OUTPUTS, OPERAND, NAN, ONE_DEVICE, SLOW = (
    "one_output",
    "all_outputs",
    "operand",
    "nan",
    "one_device",
    "slow",
)
SLOWER = 3  # times
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def no_fault(repeat: int, output: Any) -> None:
    """Leaves the output unchanged."""


def choose_fault_position(output: Any) -> tuple[int, int]:
    """Row and column of the corrupted element."""
    return output.shape[0] // 3, output.shape[1] // 5


def build_output_fault(fault: str, again: Callable[[Any], None] | None = None) -> Callable[[int, Any], None]:
    """Build the change to each repeat's output. `again` repeats the work into an output, for ``slow``.

    ``one_output`` and ``all_outputs`` flip a high bit of one element, in repeat 1 or in all. ``one_device`` flips the lowest bit
    of a floating-point number in all repeats: well within rounding, so only another device or a golden can tell.
    """

    def committed(repeat: int, output: Any) -> None:
        floating = output.dtype.is_floating_point
        if fault == ALL_OUTPUTS or (fault == ONE_OUTPUT and repeat == 1):
            flip_bit(output, 8 * output.element_size() - 3)
        elif fault == ONE_DEVICE and floating:
            flip_bit(output, 0)
        elif fault == NAN and floating:
            output[choose_fault_position(output)] = float("nan")
        elif fault == SLOW and again is not None:
            for _ in range(SLOWER - 1):
                again(output)

    return committed if fault in (ONE_OUTPUT, ALL_OUTPUTS, NAN, ONE_DEVICE, SLOW) else no_fault


def flip_bit(output: Any, bit: int) -> None:
    """Flip one bit of one element, in place."""
    output.view(_WORDS[output.element_size()])[choose_fault_position(output)] ^= 1 << bit


def corrupt_operand(operand: Any) -> None:
    """Flip the lowest bit of one element of an operand, after it was written and before it is used."""
    row, column = choose_fault_position(operand)
    view_as_int64(operand)  # a copy of the operand would be corrupted instead
    operand.view(_WORDS[operand.element_size()])[row, column] ^= 1
