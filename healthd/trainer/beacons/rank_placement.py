"""Who a rank is: its job, its place in it, its peers, its GPU."""

from __future__ import annotations

import re
from typing import NamedTuple


class RankGroups(NamedTuple):
    """Where a rank stands among its peers; -1 and empty: not told. Ranks that share all of these do the same work."""

    role: str = ""
    pipeline_stage: int = -1
    tensor_group: int = -1
    data_group: int = -1
    expert_group: int = -1


class RankGpu(NamedTuple):
    """The GPU of a rank, as far as it is known. PCI address as ``0000:3b:00.0``; `number` is its index as the driver counts."""

    uuid: str = ""
    pci: str = ""
    number: int = -1


class RankPlacement(NamedTuple):
    """A rank's place in its job, as its environment tells it."""

    job: str
    attempt: int
    rank: int
    world: int
    local_rank: int = 0
    node: str = ""
    groups: RankGroups = RankGroups()
    gpu: RankGpu = RankGpu()


def page_name(job: str, attempt: int, rank: int) -> str:
    """File name of a page. Unusual characters of a job's name are replaced: the identity inside is what counts."""
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', job)[:100]}.{attempt}.{rank}.beacon"
