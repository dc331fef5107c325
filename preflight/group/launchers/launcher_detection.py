"""The supported launchers: torchrun, a Slurm step, an Indexed Job; and detection of the one that started this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from preflight.group.launchers.rank_placement import (
    LauncherError,
    RankPlacement,
    place_at_master,
    require_number,
    require_text,
    resolve_own_name,
)
from vocabulary.text.plurals import format_count
from vocabulary.text.slurm_hostlist import expand_hostlist

TORCHRUN = "torchrun"
RUN_VARIABLES = ("HEALTHD_RUN", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
SLURM = "slurm"
PORT_FIRST, PORT_COUNT = 20_000, 10_000
INDEXED_JOB = "kubernetes"


def read_torchrun_placement(environ: Mapping[str, str], host: str) -> RankPlacement | None:
    """The placement of this process; None if torchrun did not start it.

    torchrun with one process per node, healthctl launch, or a manual start with the same variables.

    Raises:
        LauncherError: there is not exactly one process per node.
    """
    if "RANK" not in environ or "WORLD_SIZE" not in environ:
        return None
    here = require_number(environ, "LOCAL_WORLD_SIZE") if environ.get("LOCAL_WORLD_SIZE") else 1
    if here != 1:
        raise LauncherError(
            f"LOCAL_WORLD_SIZE={here}: a group runs one process on each node; use torchrun --nproc-per-node=1"
        )
    place = place_at_master(
        environ, host, TORCHRUN, require_number(environ, "RANK"), require_number(environ, "WORLD_SIZE")
    )
    run = ".".join(environ.get(name, "") for name in RUN_VARIABLES).strip(".")
    there = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return msgspec.structs.replace(place, run=run, store_is_there=there)


def read_slurm_placement(environ: Mapping[str, str], host: str) -> RankPlacement | None:
    """The placement of this task; None outside of a step (`srun --ntasks-per-node=1 python -m preflight group`).

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
        launcher=SLURM,
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


def read_indexed_job_placement(environ: Mapping[str, str], host: str) -> RankPlacement | None:
    """The placement of this pod; None outside of an Indexed Job.

    Kubernetes provides the index; the manifest must provide the size and the address of rank 0.

    Raises:
        LauncherError: the manifest lacks a variable.
    """
    if "JOB_COMPLETION_INDEX" not in environ:
        return None
    place = place_at_master(
        environ, host, INDEXED_JOB, require_number(environ, "JOB_COMPLETION_INDEX"), require_number(environ, "NNODES")
    )
    return msgspec.structs.replace(place, run=environ.get("HEALTHD_RUN", ""))


# torchrun may itself run inside a Slurm step or a pod, and then it counts.
LAUNCHERS: dict[str, Callable[[Mapping[str, str], str], RankPlacement | None]] = {
    TORCHRUN: read_torchrun_placement,
    SLURM: read_slurm_placement,
    INDEXED_JOB: read_indexed_job_placement,
}


def detect_placement(environ: Mapping[str, str], host: str) -> RankPlacement:
    """The placement of this process in its group.

    Raises:
        LauncherError: no launcher is detected, or there is not exactly one process per node.
    """
    for read in LAUNCHERS.values():
        if (place := read(environ, host)) is not None:
            return place
    raise LauncherError(
        "no launcher detected: start with srun --ntasks-per-node=1, with torchrun --nproc-per-node=1, in an Indexed Job, "
        "or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
    )
