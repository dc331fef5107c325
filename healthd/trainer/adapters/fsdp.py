"""FSDP2 and DDP: does a step of this model reach every rank? The agreement on a step stands on that (docs/internals/agreement.md).

`TrainingCheckpoints` of `adapters.pytorch` saves both kinds of model; nothing else of them needs an adapter.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel


def require_all_ranks(model: torch.nn.Module) -> None:
    """Refuse a model whose gradients do not bring all ranks of the job together in each step. Call it once, after wrapping.

    Raises:
        ValueError: names ranks that no parameter of it is shared with. Such a job's groups train apart from each other: give
            the loop a collective of all ranks (an all-reduced loss will do), or each group a guard and a store of its own.
    """
    if not dist.is_initialized():
        return
    missing = sorted(set(range(dist.get_world_size())) - ranks_reached(model))
    if missing:
        shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        text = f"no parameter of this model is shared with rank {shown}: orders to save cannot be agreed with"
        raise ValueError(f"{text} {'it' if len(missing) == 1 else 'them'}; each step needs a collective of all ranks")


def ranks_reached(model: torch.nn.Module) -> set[int]:
    """This rank, and those its gradients are reduced with: over each parameter's mesh, over each DDP group."""
    reached = {dist.get_rank()}
    for parameter in model.parameters():
        if isinstance(parameter, DTensor):
            reached.update(parameter.device_mesh.mesh.flatten().tolist())
    for module in model.modules():
        if isinstance(module, DistributedDataParallel):
            reached.update(dist.get_process_group_ranks(module.process_group))
    return reached
