"""A rank's identity: its job, its place in it, its peers, its GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class RankGroups(NamedTuple):
    """A rank's parallelism groups; -1 and empty mean not set. Ranks that share all of these do the same work."""

    role: str = ""
    pipeline_stage: int = -1
    tensor_group: int = -1
    data_group: int = -1
    expert_group: int = -1


class RankGpu(NamedTuple):
    """The GPU of a rank, as far as known. PCI address as ``0000:3b:00.0``; `number` is the driver's index."""

    uuid: str = ""
    pci: str = ""
    number: int = -1


class RankPlacement(NamedTuple):
    """A rank's place in its job, from its environment."""

    job: str
    attempt: int
    rank: int
    world: int
    local_rank: int = 0
    node: str = ""
    groups: RankGroups = RankGroups()
    gpu: RankGpu = RankGpu()


def read_rack(environ: Mapping[str, str]) -> str:
    """Return the rack of this rank's node: HEALTHD_RACK, else the leaf switch that Slurm names; empty if neither is known.

    Slurm sets SLURM_TOPOLOGY_ADDR to the switches from the top down and the node, such as ``spine.leaf3.n17``.
    """
    if rack := environ.get("HEALTHD_RACK"):
        return rack
    levels = environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    return environ.get("SLURM_TOPOLOGY_ADDR", "").rpartition(".")[0] if "switch" in levels else ""


def page_name(job: str, attempt: int, rank: int) -> str:
    """Return a page's file name.

    Unusual characters of the job name are replaced: the identity inside is authoritative.
    """
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', job)[:100]}.{attempt}.{rank}.beacon"
