"""Tells from a stack what a rank waits for. Pure.

A stack is a tuple of frames, outermost first, each as `function (file:line)`; files of libraries are relative to their
package directory. The innermost frame that a rule knows decides: a data set that waits in a collective is in the
collective.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

FRAME = re.compile(r"(?P<function>.+) \((?P<file>[^()]+):\d+\)")


class StackPlace(str, enum.Enum):
    """What a rank waits for, as its stack shows it."""

    COLLECTIVE = "collective"  # other ranks
    DATA = "data"  # its data loader, or a queue
    CHECKPOINT = "checkpoint"
    COMPILE = "compile"
    CUDA_SYNC = "cuda_sync"  # its GPU
    OTHER = "other"


OFF_THE_GPU = frozenset({StackPlace.DATA, StackPlace.CHECKPOINT, StackPlace.COMPILE})  # no sign of a faulty GPU

# Frames of compiled code that runs are in some of these files, too; they are no compilation.
_RUNS = frozenset({"run", "__call__", "_fn", "wrapper", "inner", "call", "launcher"})
_RULES: tuple[tuple[StackPlace, str, str], ...] = (
    (StackPlace.CUDA_SYNC, r"torch/cuda/(__init__|streams|graphs)\.py", r"synchronize|wait"),
    (StackPlace.COLLECTIVE, r"torch/distributed/(distributed_c10d|_functional_collectives|rendezvous)\.py", ""),
    (StackPlace.COLLECTIVE, r"healthd/trainer/(agreement|store_caller|rendezvous_client)\.py", ""),
    (StackPlace.DATA, r"torch/utils/data/.*", ""),
    (StackPlace.DATA, r"(datasets|webdataset|streaming|ffcv|nvidia/dali|tensorflow/python/data)/.*", ""),
    (StackPlace.DATA, r"(.*/)?(queue|multiprocessing/queues)\.py", r"get"),
    (StackPlace.CHECKPOINT, r"torch/(serialization\.py|distributed/checkpoint/.*)", ""),
    (StackPlace.CHECKPOINT, r"(safetensors/.*|healthd/trainer/(checkpoint\.py|checkpoint_storage/.*))", ""),
    (StackPlace.CHECKPOINT, r"healthd/trainer/adapters/pytorch_(checkpoint|file_writer|peer_copies).*", ""),
    (StackPlace.COMPILE, r"torch/_dynamo/(convert_frame|symbolic_convert|output_graph|bytecode_.*|variables/.*)", ""),
    (
        StackPlace.COMPILE,
        r"torch/_inductor/(compile_fx|graph|lowering|scheduler|codegen/.*|async_compile|codecache)",
        "",
    ),
    (StackPlace.COMPILE, r"triton/(compiler|backends)/.*", ""),
)
_COMPILED = tuple(
    (place, re.compile(rf"{file}(\.py)?", re.ASCII), re.compile(function) if function else None)
    for place, file, function in _RULES
)


def classify_stack(frames: Sequence[str]) -> StackPlace:
    """Return what a rank with this stack waits for.

    >>> classify_stack(["<module> (train.py:9)", "all_reduce (torch/distributed/distributed_c10d.py:3252)"]).value
    'collective'
    """
    for frame in reversed(frames):
        match = FRAME.fullmatch(frame)
        place = None if match is None else _classify_frame(match["file"], match["function"])
        if place is not None:
            return place
    return StackPlace.OTHER


def _classify_frame(file: str, function: str) -> StackPlace | None:
    for place, files, functions in _COMPILED:
        if place is StackPlace.COMPILE and function in _RUNS:
            continue
        if files.fullmatch(file) and (functions is None or functions.fullmatch(function)):
            return place
    return None
