"""RAS answers as NCCL writes them, for tests: built from counts, in the form of the version that is asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

KINDS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
GPUS = 8  # of a node


class Gone(NamedTuple):
    """A rank that RAS misses in a communicator."""

    unresponsive: bool = True
    dead: bool = False


def place_rank(number: int) -> dict[str, Any]:
    """Where the job's rank number `number` runs."""
    gpu = number % GPUS
    return {"host": f"10.0.0.{number // GPUS + 1}", "pid": 4000 + gpu, "cuda_dev": gpu, "nvml_dev": gpu}


def communicator(
    name: str, counts: Mapping[int, Sequence[int] | Gone], status: Mapping[int, Mapping[str, Any]] = {}
) -> dict[str, Any]:
    """One communicator: the job's rank → its counts by kind; the ranks of the communicator are numbered in that order."""
    usual = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    ranks: list[dict[str, Any]] = []
    missing: list[dict[str, Any]] = []
    for rank, (number, counted) in enumerate(counts.items()):
        head = {"rank": rank, **place_rank(number)}
        if isinstance(counted, Gone):
            flags = {"unresponsive": counted.unresponsive, "considered_dead": counted.dead}
            missing.append({**head, "status": flags})
        else:
            done = dict(zip(KINDS, counted, strict=True))
            ranks.append({**head, "status": {**usual, **status.get(number, {})}, "collective_counts": done})
    return {
        "hash": name,
        "secondary_hash": "0x1:0x2",
        "size": len(counts),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(missing),
        "ranks": ranks,
        "missing_ranks": missing,
    }


def answer(communicators: Iterable[Mapping[str, Any]], version: str = "2.29.2") -> dict[str, Any]:
    """A whole answer."""
    communicators = list(communicators)
    return {
        "nccl_version": version,
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": "2026-11-28 21:00:00",
        "communicators_count": len(communicators),
        "communicators": communicators,
        "ras": {"collection_time_sec": 0.001, "timeouts_count": 0},
    }


def write_answer(document: Mapping[str, Any], *, without_comma: bool = False) -> bytes:
    """The answer as NCCL formats it; 2.28.9 leaves a comma out in every missing rank."""
    text = json.dumps(document, indent=2)
    if without_comma:
        text = re.sub(r'("nvml_dev": -?\d+),(\s+"status": \{\s+"unresponsive")', r"\1\2", text)
    return f"{text}\n".encode()
