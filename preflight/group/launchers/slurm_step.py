"""A task of a Slurm step, one on each node: `srun --ntasks-per-node=1 python -m preflight group`."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.group.launchers.rank_placement import (
    LauncherError,
    RankPlacement,
    require_number,
    require_text,
    resolve_own_name,
)
from vocabulary.text.plurals import format_count
from vocabulary.text.slurm_hostlist import expand_hostlist

NAME = "slurm"
PORT_FIRST, PORT_COUNT = 20_000, 10_000


def read_slurm_placement(environ: Mapping[str, str], host: str) -> RankPlacement | None:
    """The placement of this task; None outside of a step.

    MASTER_ADDR and MASTER_PORT, if set, give rank 0's address; else it is the step's first node, and a port derived from
    job and step.

    Raises:
        LauncherError: the step does not run one task on each node.
    """
    if "SLURM_PROCID" not in environ or "SLURM_STEP_ID" not in environ:
        return None
    world = require_number(environ, "SLURM_NTASKS")
    listed = tuple(expand_hostlist(environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")))
    if len(listed) != world:
        raise LauncherError(
            f"{world} tasks on {format_count(len(listed), 'node')}: a group runs one task on each node; use srun --ntasks-per-node=1"
        )
    job, step = require_number(environ, "SLURM_JOB_ID", 10**9), require_number(environ, "SLURM_STEP_ID", 10**9)
    port = require_number(environ, "MASTER_PORT", 65535) if environ.get("MASTER_PORT") else derive_port(job, step)
    return RankPlacement(
        launcher=NAME,
        rank=require_number(environ, "SLURM_PROCID"),
        world=world,
        node=resolve_own_name(environ, host),
        address=environ.get("MASTER_ADDR") or require_text({"SLURM_STEP_NODELIST": listed[0]}, "SLURM_STEP_NODELIST"),
        port=port,
        leaf=environ.get("HEALTHD_LEAF") or parse_leaf_switch(environ),
        run=f"{job}.{step}",
        listed=listed,
    )


def derive_port(job: int, step: int) -> int:
    """A port that all tasks of a step derive alike, and that the next step does not share.

    >>> derive_port(12, 0)
    20372
    """
    return PORT_FIRST + (31 * job + step) % PORT_COUNT


def parse_leaf_switch(environ: Mapping[str, str]) -> str:
    """The last switch before the node, from Slurm's topology plug-in; "" if unknown.

    >>> parse_leaf_switch({"SLURM_TOPOLOGY_ADDR": "spine.leaf3.n7", "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node"})
    'leaf3'
    >>> parse_leaf_switch({"SLURM_TOPOLOGY_ADDR": "n7", "SLURM_TOPOLOGY_ADDR_PATTERN": "node"})
    ''
    """
    names = environ.get("SLURM_TOPOLOGY_ADDR", "").split(".")
    kinds = environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    switches = [name for name, kind in zip(names, kinds, strict=False) if kind == "switch"]
    return switches[-1] if switches and len(names) == len(kinds) else ""
