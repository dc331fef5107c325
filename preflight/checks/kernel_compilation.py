"""Compiles the kernels of all tests ahead of time: `python -m preflight.checks.kernel_compilation [ARCHITECTURE ...]`.

Prints one JSON object a line for each architecture; without one, for those of this node's GPUs. The tests' own launches are
made with small tensors in the processor's memory, so that Triton's cache gets the keys that a launch on the GPU looks for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import msgspec
import torch

from preflight.checks import cache_pattern, memory_retention
from preflight.host.nvml_library import NoDriverError, load_nvml
from preflight.kernels import on_chip_words
from preflight.kernels.aggressor_lines import LINE_WORDS, SIDES, STRIDES, Aggressors, Layout
from preflight.kernels.ahead_of_time import compile_only, load_host_module
from preflight.kernels.hammer_kernels import hammer_rows
from preflight.kernels.memory_errors import Piece
from preflight.kernels.memory_patterns import FULL, GATE, Pattern
from preflight.kernels.memory_sweeps import sweep_patterns
from preflight.kernels.on_chip_kernels import run_programs
from preflight.kernels.on_chip_words import build_source_words
from preflight.kernels.tensor_digests import BLOCK_WORDS, OutputDigests
from preflight.kernels.triton_matmul import DEPTH, FRACTION_BITS, TILE, compute_own_product
from preflight.kernels.triton_memory import BLOCK_WORDS as MEMORY_BLOCK_WORDS
from preflight.kernels.triton_memory import TritonWay
from preflight.worker_messages import CompiledKernels

# Numbers for which Triton compiles apart: 1, multiples of 16, and others.
_WORDS = (BLOCK_WORDS, BLOCK_WORDS + 5)
_FIRST_TILES = (0, 1, 3)
_BLOCKS = 16


def compile_test_kernels(architecture: int) -> CompiledKernels:
    """Compile every kernel that a test launches on a GPU of this architecture (90 is an H200's)."""
    began = time.monotonic()
    utils, why = load_host_module()
    with compile_only(architecture, utils) as names:
        for patterns in (GATE, GATE[:2], FULL, memory_retention.PATTERNS, cache_pattern.PATTERNS):
            _launch_memory_kernels(patterns)
        _launch_digests()
        _launch_products()
        _launch_on_chip_programs()
        _launch_hammer()
    return CompiledKernels(architecture, len(names), round(time.monotonic() - began, 1), why)


def _launch_memory_kernels(patterns: Sequence[Pattern]) -> None:
    way, piece = TritonWay(), Piece(torch.empty(_BLOCKS * MEMORY_BLOCK_WORDS, dtype=torch.int64))
    sweep_patterns(way, [piece], patterns)
    for pattern in patterns:
        way.write(piece, pattern)
        going = way.begin(pattern, "cpu")
        going.launch(piece)
        going.launched[0].notes[0] = 1  # a wrong block: those are counted by a kernel of its own
        going.errors([piece])


def _launch_digests() -> None:
    for words in _WORDS:
        output = torch.zeros(words, dtype=torch.int64)
        digests = OutputDigests(output, 2, by_triton=True)
        for repeat in range(2):
            digests.add(repeat, output)


def _launch_products() -> None:
    for operands in FRACTION_BITS:
        left, right = (torch.zeros((TILE, TILE), dtype=operands) for _ in range(2))
        for first in _FIRST_TILES:
            compute_own_product(left, right, TILE, DEPTH, first, ask_sm=True)


def _launch_on_chip_programs() -> None:
    programs, window = 2, 1
    source = build_source_words(0, programs * window, on_chip_words.TURNS, "cpu")
    for memory in on_chip_words.MEMORIES:
        run_programs(memory, source, programs, window, -1, 0, ask_sm=True)


def _launch_hammer() -> None:
    piece = Piece(torch.empty(LINE_WORDS, dtype=torch.int64))
    starts = torch.zeros(1, dtype=torch.int64)
    hammer_rows(Aggressors([piece], Layout(STRIDES[0], SIDES[0]), (starts,)), 1, discard=True)


def read_architectures() -> list[int]:
    """The architectures of this node's GPUs, as NVML reports them.

    Raises:
        NoDriverError: there is no driver, or it does not respond.
    """
    nvml = load_nvml(lambda _: None)
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    return sorted({major * 10 + minor for major, minor in map(nvml.nvmlDeviceGetCudaComputeCapability, handles)})


def main(arguments: Sequence[str]) -> None:
    """Compile for each architecture named, or for this node's.

    Raises:
        SystemExit: with the reason, if this node's are unknown.
    """
    try:
        architectures = sorted(set(map(int, arguments))) or read_architectures()
    except NoDriverError as error:
        sys.exit(f"{error}; give --architecture to compile without a GPU")
    for architecture in architectures:
        sys.stdout.write(msgspec.json.encode(compile_test_kernels(architecture)).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
