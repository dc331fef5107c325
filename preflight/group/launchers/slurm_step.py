"""A task of a Slurm step, one on each node: `srun --ntasks-per-node=1 python -m preflight group`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from preflight.group.launchers.rank_placement import (
    LauncherError,
    RankPlacement,
    require_number,
    require_text,
    resolve_own_name,
)
from vocabulary.text.plurals import format_count

NAME = "slurm"
PORT_FIRST, PORT_COUNT = 20_000, 10_000
NODES_MAX = 100_000

_PART = re.compile(r"(?P<head>[^\[\],]*)(?:\[(?P<ranges>[0-9,-]+)\](?P<tail>[^,]*))?(?:,|$)")


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


def expand_hostlist(hostlist: str) -> Iterator[str]:
    """Expand a Slurm host list, in its order.

    >>> list(expand_hostlist("n[1-3,07],login"))
    ['n1', 'n2', 'n3', 'n07', 'login']

    Raises:
        LauncherError: it is none, or one with several brackets in a name.
    """
    place = 0
    while place < len(hostlist):
        part = _PART.match(hostlist, place)
        if part is None or part.end() == place:
            raise LauncherError(f"cannot parse the node list {hostlist[:200]!r} at {hostlist[place : place + 40]!r}")
        place = part.end()
        if part["ranges"] is None:
            yield part["head"]
            continue
        if "[" in (part["tail"] or ""):
            raise LauncherError(f"{part[0]!r} has several brackets, which is not supported; set RANK and WORLD_SIZE")
        for span in part["ranges"].split(","):
            yield from (f"{part['head']}{text}{part['tail']}" for text in _expand_range(span))


def _expand_range(text: str) -> Iterator[str]:
    first, _, last = text.partition("-")
    last = last or first
    if not first.isdigit() or not last.isdigit() or not 0 <= int(last) - int(first) < NODES_MAX:
        raise LauncherError(f"{text!r} is not a node range")
    return (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
