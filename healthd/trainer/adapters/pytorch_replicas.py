"""Whether every rank holds the whole state of training, so that a job of any number of ranks can go on from one rank's copy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor

from healthd.trainer.adapters.pytorch_host_copy import iterate_leaves

COMPARED_BYTES = 4096  # of each tensor: shards of one tensor differ in their first bytes already
_OF_EVERY_RANK = "generators"  # restart with another number of ranks, as after loading a checkpoint


class ReplicaDigest(NamedTuple):
    """What a rank says of its state: why it is not whole, or a digest that is the same on ranks that hold the same."""

    why_not: str
    digest: str


def digest_replica(tree: Mapping[str, Any]) -> ReplicaDigest:
    """Of a state tree as `TrainingState.collect` makes it. Compares what is trained: buffers of a module may differ between ranks."""
    sharded = next(_sharded(tree), "")
    if sharded:
        return ReplicaDigest(f"{sharded} is sharded over the ranks", "")
    own = {name for rank in tree.get("ranks", {}).values() for name in rank} - {_OF_EVERY_RANK}
    if own:
        return ReplicaDigest(f"{', '.join(sorted(own))}: each rank has its own", "")
    names = {name for group in tree["optimizer"].get("param_groups", ()) for name in group["params"]}
    digest = hashlib.blake2b(digest_size=16)
    for path, value in iterate_leaves({"model": tree["model"], "state": tree["optimizer"].get("state", {})}):
        if isinstance(value, torch.Tensor) and (path[0] != "model" or path[1] in names or not names):
            digest.update(repr((path, tuple(value.shape), value.dtype)).encode())
            digest.update(_first_bytes(value))
    return ReplicaDigest("", digest.hexdigest())


def explain_unreplicated(said: Sequence[ReplicaDigest]) -> str:
    """Why no rank's copy is enough for all, by what the ranks say; empty where any is."""
    why = next((each.why_not for each in said if each.why_not), "")
    differ = len({each.digest for each in said}) > 1
    return why or ("the ranks hold different parts of the state" if differ else "")


def _sharded(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[str]:
    """Names of tensors of which this rank has only a part."""
    if isinstance(tree, Mapping | list | tuple):
        for key, value in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
            yield from _sharded(value, (*path, key))
    elif isinstance(tree, DTensor) and not all(each.is_replicate() for each in tree.placements):
        yield ".".join(map(str, path))


def _first_bytes(value: torch.Tensor) -> bytes:
    count = max(1, COMPARED_BYTES // max(1, value.element_size()))
    flat = value.detach().reshape(-1)[:count].contiguous().cpu()
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
