"""Compile every GPU kernel of preflight for real architectures, which needs no GPU, and print what each costs as a table.

`python -m bench.gpu.compiled_kernels [--json] [ARCHITECTURE ...]`, without TRITON_INTERPRET: the decorator decides at import.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

warnings.simplefilter("ignore")  # of the compiler's own defaults

import triton  # noqa: E402 - after the filter
from triton.backends.compiler import GPUTarget  # noqa: E402 - after the filter
from triton.compiler import ASTSource, compile  # noqa: A004, E402 - its name there; after the filter

from bench.gpu.instruction_counts import CHIPS, KernelCost, read_kernel_cost  # noqa: E402 - after the filter
from preflight.kernels import memory_patterns as p  # noqa: E402 - after the filter
from preflight.kernels.digest_kernel import digest_kernel  # noqa: E402 - after the filter
from preflight.kernels.hammer_kernels import LANES, hammer_kernel  # noqa: E402 - after the filter
from preflight.kernels.memory_kernels import (  # noqa: E402 - after the filter
    count_kernel,
    verify_and_write_kernel,
    verify_kernel,
    write_kernel,
)
from preflight.kernels.on_chip_kernels import (  # noqa: E402 - after the filter
    ROWS,
    l1_kernel,
    register_kernel,
    shared_kernel,
)
from preflight.kernels.on_chip_words import HELD_WORDS, LINE_WORDS  # noqa: E402 - after the filter
from preflight.kernels.triton_matmul import product_kernel  # noqa: E402 - after the filter
from preflight.kernels.triton_memory import BLOCK_WORDS, KEPT, LISTED  # noqa: E402 - after the filter

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
KINDS = ("address", "walking", "constant", "hash", "checker", "modulo", "stride")
GATE = (("address", "hash"), ("hash", "hash"), ("hash", "walking"))  # what is verified, what replaces it
_WORDS = ("memory", "notes", "kept", "counters", "listed", "data", "rows", "numbers")
_POINTERS = dict.fromkeys((*_WORDS, "digests", "kept_places", "kept_words"), "*i64")
_POINTERS |= {"left": "*bf16", "right": "*bf16", "output": "*bf16", "sms": "*i32"}
_ON_CHIP = dict.fromkeys(("held", "lines", "flips", "outputs", "sms"), "*i32")
_ON_CHIP |= dict.fromkeys(("turns", "window", "windows", "fault", "mask"), "i32")
_ALIGNED = [["tt.divisibility", 16]]


class Kernel(NamedTuple):
    """One kernel to compile. `moves` are the passes over memory that it makes: bytes of a block, read and written."""

    name: str
    function: Any
    constants: dict[str, Any]
    pointers: dict[str, str]
    moves: int = 0
    warps: int = 4


def list_kernels(*, whole: bool) -> Iterator[Kernel]:
    """Those of the gate and of products; `whole` adds the words of all kinds of patterns."""
    place = {"EVEN": True, "SCATTERED": False, "BLOCK": BLOCK_WORDS}
    kept, times = place | {"KEPT": KEPT}, {"times": "*i32"}
    for kind in KINDS if whole else ("address", "hash"):
        yield Kernel(f"write {kind}", write_kernel, place | {"KIND": KINDS.index(kind)}, {}, 1)
    for kind in KINDS if whole else ("hash", "walking"):
        yield Kernel(f"verify {kind}", verify_kernel, kept | {"KIND": KINDS.index(kind)}, times, 1)
    for one, other in GATE:
        kinds = {"KIND": KINDS.index(one), "KIND_NEXT": KINDS.index(other)}
        yield Kernel(f"verify {one}, write {other}", verify_and_write_kernel, kept | kinds, times, 2)
    if whole:
        odd = kept | {"KIND": p.HASH, "KIND_NEXT": p.HASH, "EVEN": False, "SCATTERED": True}
        yield Kernel("scattered, no whole number of blocks", verify_and_write_kernel, odd, times)
    count = {"KIND": p.HASH, "BLOCK": BLOCK_WORDS, "ROOM": LISTED}
    yield Kernel("count hash", count_kernel, count, {"times": "*i64"})
    digest = {"data": "*i64", "counter": "*i64"}
    yield Kernel("digest", digest_kernel, {"BLOCK": 2048, "ROOM": 16, "COMPARE": True}, digest)
    yield Kernel("product", product_kernel, {"TILE": 128, "DEPTH": 64, "ASK_SM": True}, {})
    on_chip = {"WORDS": HELD_WORDS, "ASK_SM": True}
    yield Kernel("registers", register_kernel, on_chip, _ON_CHIP)
    yield Kernel("shared memory", shared_kernel, on_chip | {"ROWS": ROWS}, _ON_CHIP)
    yield Kernel("l1", l1_kernel, on_chip | {"WORDS": LINE_WORDS}, _ON_CHIP)
    hammer = {"starts": "*i64", "outputs": "*i32", "sides": "i32", "turns": "i32"}
    yield Kernel("hammer", hammer_kernel, {"LANES": LANES, "DISCARD": True}, hammer, warps=1)


def compile_kernel(kernel: Kernel, architecture: int) -> Any:
    """The compiled kernel, of 64-bit numbers unless `pointers` says otherwise; pointers and sizes are multiples of 16."""
    signature, constants, aligned = {}, {}, []
    for number, name in enumerate(kernel.function.arg_names):
        pointer = kernel.pointers.get(name) or _POINTERS.get(name)
        signature[name] = "constexpr" if name in kernel.constants else pointer or "i64"
        if name in kernel.constants:
            constants[(number,)] = kernel.constants[name]
        elif signature[name].startswith("*") or (
            name in {"words", "size_k", "size_n"} and not kernel.function.params[number].do_not_specialize
        ):
            aligned.append(number)
    source = _build_source(kernel, signature, constants, aligned)
    return compile(source, target=GPUTarget("cuda", architecture, 32), options={"num_warps": kernel.warps})


def _build_source(kernel: Kernel, signature: dict[str, str], constants: dict[Any, Any], aligned: list[int]) -> Any:
    if triton.__version__.startswith("3.2."):
        from triton.backends.compiler import AttrsDescriptor  # noqa: PLC0415 - only there

        kept = {name: kind for name, kind in signature.items() if kind != "constexpr"}
        described = AttrsDescriptor.from_dict(
            {"cls": "AttrsDescriptor", "arg_properties": {"tt.divisibility": aligned}}
        )
        return ASTSource(kernel.function, kept, dict(kernel.constants), described)
    return ASTSource(kernel.function, signature, constants, dict.fromkeys(((at,) for at in aligned), _ALIGNED))


def main() -> None:
    """Print a table, or one JSON object for tests."""
    wanted = [int(each) for each in sys.argv[1:] if each.isdecimal()] or [chip.architecture for chip in CHIPS]
    found, rows = {}, [f"Triton {triton.__version__}", ""]
    rows += [
        "| GPU | kernel | registers | occupancy | instructions a word | bound TB/s | of the data sheet |",
        "|---|---|---|---|---|---|---|",
    ]
    for chip in CHIPS:
        for kernel in list_kernels(whole=chip.architecture == 90) if chip.architecture in wanted else ():
            made = compile_kernel(kernel, chip.architecture)
            cost = read_kernel_cost(made.asm["cubin"], TOOLS, code=kernel.moves > 0)
            rate = cost.rate(chip, kernel.moves * BLOCK_WORDS * 8) if cost.healthy else 0.0
            found[f"{chip.architecture} {kernel.name}"] = cost._asdict() | {
                "ptx": made.asm["ptx"],
                "shared_bytes": made.metadata.shared,
                "share": rate / chip.bandwidth,
            }
            rows.append(_render_row(chip, kernel, cost, rate))
    print(json.dumps(found) if "--json" in sys.argv else "\n".join(rows))


def _render_row(chip: Any, kernel: Kernel, cost: KernelCost, rate: float) -> str:
    words = (
        f"{len(cost.healthy) * 128 / BLOCK_WORDS:.1f} | {rate / 1e12:.1f} | {rate / chip.bandwidth:.0%}"
        if kernel.moves
        else " | | "
    )
    return f"| {chip.name} (sm_{chip.architecture}) | {kernel.name} | {cost.registers} | {cost.occupancy(chip.architecture):.0%} | {words} |"


if __name__ == "__main__":
    main()
