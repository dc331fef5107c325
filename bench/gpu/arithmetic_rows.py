"""Arithmetic: the library's bare rate, the rate with every output checked, and what injected faults look like."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from bench.gpu.table import Row, Scale, measure_seconds, wait_for_device
from preflight.kernels import checksums, elementwise_functions, golden_digests
from preflight.kernels.arithmetic_faults import no_fault
from preflight.kernels.digest_platform import describe_platform
from preflight.kernels.matmul_products import KINDS, MatmulWork, ProductKind, RepeatResult, repeat_product
from preflight.kernels.triton_matmul import find_disagreements

SEED = 0xACE
UNAVAILABLE = (RuntimeError, NotImplementedError, ValueError)


def prepare_heat(scale: Scale) -> Callable[[], None]:
    """Products for `heat_s` seconds, made ready now, while there is memory for them."""
    work = MatmulWork(_kind(scale.second_type), scale.size // 4, SEED, scale.device)
    output = work.buffer()

    def call() -> None:
        until = time.monotonic() + scale.heat_s
        while time.monotonic() < until:
            for _ in range(64):
                work.run(output)
            wait_for_device(scale.device)

    return call


def rate_rows(scale: Scale, kind: ProductKind) -> Iterator[Row]:
    """Bare, every output digested on a second stream, and after the product on the same; then all that judges a product."""
    try:
        work = MatmulWork(kind, scale.size, SEED, scale.device)
    except UNAVAILABLE as error:
        wait_for_device(scale.device)  # a card that failed, rather than has no such product, fails here again
        yield Row("arithmetic", kind.name, note=f"not here: {_line(error)}")
        return
    operations = 2.0 * scale.size**3 * scale.repeats
    output = work.buffer()

    def bare() -> None:
        for _ in range(scale.repeats):
            work.run(output)

    library = operations / measure_seconds(scale.device, bare)
    yield Row("arithmetic", f"{kind.name}: library alone", library / 1e12, "TFLOP/s")
    for name, overlap in (("every output checked", True), ("the same on one stream", False)):
        repeat = partial(repeat_product, work, scale.repeats, overlap=overlap)
        rate = operations / measure_seconds(scale.device, repeat)
        yield Row("arithmetic", f"{kind.name}: {name}", rate / 1e12, "TFLOP/s", rate / library)
    yield _judged(scale, kind, work, output)


def _judged(scale: Scale, kind: ProductKind, work: MatmulWork, output: Any) -> Row:
    """Digests of two works made independently, checksums, and what the goldens say."""
    once = repeat_product(work, scale.repeats)
    again = repeat_product(MatmulWork(kind, scale.size, SEED, scale.device), scale.repeats)
    same = not once.differing and not again.differing and once.digest == again.digest
    sums = checksums.verify_checksums(*work.numbers, output, kind=kind.operands, tensor_float=kind.name == "tf32")
    stored = golden_digests.compare_with_goldens(
        golden_digests.read_goldens(),
        describe_platform(scale.device),
        f"{kind.name} {scale.size} {SEED:#x}",
        once.digest,
    )
    note = f"{'all digests equal' if same else 'DIGESTS DIFFER'} ({once.digest}), goldens: {stored}, "
    note += f"checksums {'WRONG' if sums.wrong else 'right'} at {sums.excess:.0%} of what is allowed"
    return Row("arithmetic", f"{kind.name}: repeatability", 2 * scale.repeats, "outputs", note=note)


def opinion_row(scale: Scale) -> Row:
    """Our own product beside the library's: agreement, and its time."""
    work = MatmulWork(_kind(scale.second_type), scale.size, SEED, scale.device)
    output = work.buffer()
    work.run(output)
    many, listed = find_disagreements(output, work.left, work.right, scale.opinion_tile)
    took = measure_seconds(
        scale.device, lambda: find_disagreements(output, work.left, work.right, scale.opinion_tile), 1
    )
    note = "no element differs" if not many else f"{many} ELEMENTS DIFFER, {listed[0]}"
    return Row("arithmetic", f"second opinion, {scale.second_type}", took, "s", note=note)


def special_rows(scale: Scale) -> Iterator[Row]:
    """Each special function repeated, digested, and compared with fp64."""
    for name in elementwise_functions.FUNCTIONS:
        began = time.perf_counter()
        answer = elementwise_functions.verify_function(
            name, scale.size // 2, scale.repeats, SEED, scale.device, no_fault
        )
        took = time.perf_counter() - began
        fine = not answer.differing and not answer.wrong
        note = f"all equal and right ({answer.digest})" if fine else f"WRONG: {answer.differing} {answer.first}"
        yield Row("arithmetic", f"{name}, {scale.repeats} times", took, "s", note=note)


def fault_rows(scale: Scale) -> Iterator[Row]:
    """One operand, one output, a NaN, and the same in all outputs: who sees it, and where they say it is."""
    work = MatmulWork(_kind(scale.second_type), scale.size, SEED, scale.device)
    row, column = scale.size // 3, scale.size // 5
    bits = {False: 1 << 13, True: 0x7FFF}

    def spoil(only: int | None, *, nan: bool = False) -> Callable[[int, Any], None]:
        def fault(repeat: int, output: Any) -> None:
            if only is None or repeat == only:
                words = output.view(torch.int16)
                if nan:
                    words[row, column] = bits[True]
                else:
                    words[row, column] ^= bits[False]

        return fault

    place = f"[{row}, {column}]"
    yield _placed("one output", repeat_product(work, scale.repeats, spoil(1)), place)
    yield _placed("NaN in one output", repeat_product(work, scale.repeats, spoil(1, nan=True)), place)
    yield _systematic(scale, work, spoil(None), (row, column))
    work.left.view(torch.int16)[row, column] ^= bits[False]
    errors = list(work.operand_errors().values())
    offset = (row * scale.size + column) * 2 // 8 * 8
    right = len(errors) == 1 and [word.offset_bytes for word in errors[0].listed] == [offset]
    note = str(errors[0].listed[0]) if errors else "nothing seen"
    yield Row("faults", "bit flip in an operand", note=f"{'detected' if right else 'MISSED'}: {note}")


def _placed(name: str, found: RepeatResult, place: str) -> Row:
    right = found.differing == [1] and len(found.places) == 1 and place in found.places[0]
    return Row("faults", name, note=f"{'detected' if right else 'MISSED'}: {'; '.join(found.places) or 'nothing seen'}")


def _systematic(scale: Scale, work: MatmulWork, fault: Callable[[int, Any], None], place: tuple[int, int]) -> Row:
    """The same wrong bits every time: digests agree, so checksums and the second opinion have to see it."""
    agree = not repeat_product(work, scale.repeats, fault).differing
    output = work.buffer()
    work.run(output)
    fault(0, output)
    sums = checksums.verify_checksums(work.left, work.factor, output)
    many, listed = find_disagreements(output, work.left, work.right, scale.opinion_tile)
    right = many == 1 and (listed[0].row, listed[0].column) == place
    note = f"{'detected' if right else 'MISSED'}: second opinion {listed[0] if listed else 'saw nothing'}; "
    note += (
        f"checksums: rows {sums.rows}, columns {sums.columns}; digests {'agree, as they must' if agree else 'differ'}"
    )
    return Row("faults", "the same in all outputs", note=note)


def all_kinds() -> tuple[ProductKind, ...]:
    """Every type of product there is to try."""
    return KINDS


def _kind(name: str) -> ProductKind:
    return next(kind for kind in KINDS if kind.name == name)


def _line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:120]
