"""Verifies a product without a second device, in three ways: plausibility, checksums, and another way of computing it."""

from __future__ import annotations

import importlib
import math
from typing import Any, NamedTuple

import torch

from preflight.kernels import checksums
from preflight.kernels.matmul_products import MatmulWork, ProductKind
from preflight.kernels.tensor_digests import explain_missing_triton, is_interpreted

FRACTION_BITS = checksums.FRACTION_BITS
SLACK = 8.0  # times the expected error of summing and reduced operands, since with many elements some are outliers
LISTED = 8
TILE = 128
HUNTING_REPEATS = 16
ROWS_OF_SLOW = 256  # of a product in double precision, if that is slow
# Compute capabilities with fast double precision (half of single); others have only a few units.
FAST_DOUBLE = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0))


class Objection(NamedTuple):
    """What one way of judging has against an output: how many elements, and where. `rows` and `columns` are of the first ones.

    `sms` are the multiprocessors that computed wrong, where that is known.
    """

    by: str
    elements: int
    words: str
    rows: list[int]
    columns: list[int]
    sms: list[int]


class LimitUse:
    """How much of each judge's rounding limit a product used: its largest error as a share of the limit."""

    def __init__(self) -> None:
        self.shares: dict[str, float] = {}

    def add(self, judge: str, share: float) -> None:
        """Keep the largest finite share of this judge."""
        if math.isfinite(share):
            self.shares[judge] = max(share, self.shares.get(judge, 0.0))


def collect_objections(work: MatmulWork, output: Any, use: LimitUse | None = None) -> list[Objection]:
    """Everything that is said against `output` as the product of the work's operands; empty for a right one.

    `use` receives the shares of the limits that it used.
    """
    judges = (
        judge_finiteness,
        judge_by_checksums,
        judge_by_own_product if supports_own_product(work) else judge_by_reordered_sum,
    )
    use = use or LimitUse()
    return [found for judge in judges if (found := judge(work, output, use)) is not None]


def judge_finiteness(work: MatmulWork, output: Any, use: LimitUse) -> Objection | None:  # noqa: ARG001 - judges are called alike
    """Operands are finite and small, so NaN and infinity are wrong by themselves."""
    wrong = ~output.isfinite()
    if not bool(wrong.any()):
        return None
    rows, columns = _find_first_positions(wrong)
    words = f"[{rows[0]}, {columns[0]}] is {float(output[rows[0], columns[0]])}"
    return Objection("not a number", int(wrong.sum()), words, rows, columns, [])


def judge_by_checksums(work: MatmulWork, output: Any, use: LimitUse) -> Objection | None:
    """The sums of rows and columns, of all of the output."""
    kind = work.kind
    sums = checksums.verify_checksums(*work.numbers, output, kind=kind.operands, tensor_float=kind.name == "tf32")
    use.add("checksums", sums.excess)
    if not sums.wrong:
        return None
    many = max(len(sums.rows), len(sums.columns))
    words = f"sums of rows {sums.rows[:LISTED]} and columns {sums.columns[:LISTED]} are wrong"
    return Objection("checksums", many, words, sums.rows[:LISTED], sums.columns[:LISTED], [])


def supports_own_product(work: MatmulWork) -> bool:
    """Whether our own kernel can do this product."""
    kinds = (
        (torch.float16,) if is_interpreted() else (torch.bfloat16, torch.float16)
    )  # interpreted, bf16 is taken for integers
    return work.kind.operands in kinds and work.size % TILE == 0 and not explain_missing_triton(work.device)


def judge_by_own_product(work: MatmulWork, output: Any, use: LimitUse) -> Objection | None:
    """Our own kernel, element by element. Where it is itself wrong, its multiprocessor is known."""
    own = importlib.import_module("preflight.kernels.triton_matmul")
    many, listed, share = own.compare_with_own_product(output, work.left, work.factor, TILE, LISTED)
    use.add("the Triton matmul", share)
    if not many:
        return None
    found = {each.sm for each in listed if each.ours_is_wrong and each.sm != own.NOT_KNOWN}
    rows, columns = [each.row for each in listed], [each.column for each in listed]
    return Objection("the Triton matmul", many, str(listed[0]), rows, columns, sorted(found))


def judge_by_reordered_sum(work: MatmulWork, output: Any, use: LimitUse) -> Objection | None:
    """Compare with double precision, summed backwards, element by element: all, or some rows if double precision is slow."""
    rows = slice(0, work.size if has_fast_double(work.device) else min(ROWS_OF_SLOW, work.size))
    theirs, (left, right) = output[rows].double(), work.numbers
    true = left[rows].double().flip(1) @ right.double().flip(0)
    error, tolerance = (theirs - true).abs(), compute_tolerance(work.kind, true, left[rows], right)
    use.add("double precision", float((error / tolerance).max()))
    wrong = ~(error <= tolerance)
    if not bool(wrong.any()):
        return None
    at, columns = _find_first_positions(wrong)
    place = at[0], columns[0]
    words = f"[{at[0]}, {columns[0]}]: {float(theirs[place]):g} computed, {float(true[place]):g} in fp64"
    return Objection("double precision", int(wrong.sum()), words, at, columns, [])


def compute_tolerance(kind: ProductKind, true: Any, left: Any, right: Any) -> Any:
    """The tolerance of each element around `true`: two units in its last place, and truncation while summing; int8 is exact."""
    if not kind.output.is_floating_point:
        return 0.5
    products = left.shape[1]
    usual = float((left.double().square().mean() * right.double().square().mean() * products).sqrt())
    summing = checksums.summing_error(kind.operands, products, tensor_float=kind.name == "tf32")
    return true.abs() * 2.0 ** (1 - FRACTION_BITS[kind.output]) + SLACK * summing * usual


def has_fast_double(device: str) -> bool:
    """Whether a whole product in double precision takes no longer than it may."""
    return not device.startswith("cuda") or torch.cuda.get_device_capability(device) in FAST_DOUBLE


def find_faulty_multiprocessors(work: MatmulWork) -> dict[int, tuple[int, int]]:
    """Repeat the Triton matmul with another assignment of tiles: multiprocessors with wrong tiles, as (wrong, computed).

    Empty where multiprocessors are not known: on a processor, without Triton, and for types that our kernel doesn't take.
    """
    if not work.device.startswith("cuda") or not supports_own_product(work):
        return {}
    own = importlib.import_module("preflight.kernels.triton_matmul")
    counted = own.count_tiles_by_multiprocessor(work.left, work.factor, HUNTING_REPEATS, TILE)
    return {sm: (tiles.wrong, tiles.computed) for sm, tiles in sorted(counted.items()) if tiles.wrong}


def _find_first_positions(wrong: Any) -> tuple[list[int], list[int]]:
    rows, columns = wrong.nonzero()[:LISTED].t().tolist()
    return rows, columns
