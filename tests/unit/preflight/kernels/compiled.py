"""Prints one JSON object: each kernel compiled for real architectures, which needs no GPU. Run in a process of its own,
without TRITON_INTERPRET: the decorator decides at import."""

from __future__ import annotations

import json
import warnings
from typing import Any

warnings.simplefilter("ignore")  # of the compiler's own defaults

from triton.backends.compiler import GPUTarget  # noqa: E402 - after the filter
from triton.compiler import ASTSource, compile  # noqa: A004, E402 - its name there; after the filter

from preflight.kernels import memory_patterns  # noqa: E402 - after the filter
from preflight.kernels.digest_kernel import digest_kernel  # noqa: E402 - after the filter
from preflight.kernels.memory_kernels import verify_and_write_kernel, verify_kernel, write_kernel  # noqa: E402 - after the filter
from preflight.kernels.triton_matmul import product_kernel  # noqa: E402 - after the filter

ARCHITECTURES = (80, 90, 100)
ALIGNED = [["tt.divisibility", 16]]


def compiled(kernel: Any, pointers: dict[str, str], constants: dict[str, Any], architecture: int) -> str:
    """The PTX of a kernel with 64-bit scalars, after ptxas took it; pointers and sizes are multiples of 16."""
    signature, constexprs, attributes = {}, {}, {}
    for number, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name], constexprs[(number,)] = "constexpr", constants[name]
            continue
        signature[name] = pointers.get(name, "i64")
        if name in pointers or name in ("words", "size_k", "size_n"):
            attributes[(number,)] = ALIGNED
    source = ASTSource(fn=kernel, signature=signature, constexprs=constexprs, attrs=attributes)
    made = compile(source, target=GPUTarget("cuda", architecture, 32))
    assert made.asm["cubin"]
    return str(made.asm["ptx"])


def main() -> None:
    memory = dict.fromkeys(("memory", "counters", "listed"), "*i64")
    digests = dict.fromkeys(("data", "digests", "counter", "kept_places", "kept_words"), "*i64")
    product = {"left": "*bf16", "right": "*bf16", "output": "*bf16", "sms": "*i32"}
    words = {"BLOCK": 2048, "ROOM": 1024}
    found: dict[str, str] = {}
    for architecture in ARCHITECTURES:
        found[f"product {architecture}"] = compiled(
            product_kernel, product, {"TILE": 128, "DEPTH": 64, "ASK_SM": True}, architecture
        )
        found[f"digest {architecture}"] = compiled(digest_kernel, digests, {**words, "COMPARE": True}, architecture)
        found[f"verify and write {architecture}"] = compiled(
            verify_and_write_kernel,
            memory,
            {**words, "KIND": memory_patterns.HASH, "KIND_NEXT": memory_patterns.WALKING},
            architecture,
        )
    for kind in range(memory_patterns.STRIDE + 1):
        found[f"write kind {kind}"] = compiled(write_kernel, memory, {"KIND": kind, "BLOCK": 2048}, 90)
        found[f"verify kind {kind}"] = compiled(verify_kernel, memory, {**words, "KIND": kind}, 90)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
