"""A rank's identity from the environment: torch's variables first, then Slurm's, else a job of one rank.

The attempt is HEALTHD_ATTEMPT, which `healthctl launch` sets alike on all nodes. Without it, TORCHELASTIC_RESTART_COUNT
is used, which is **not** the same everywhere: an elastic agent that joined late counts fewer restarts, and ranks of
different attempts can't agree on orders. Where torchrun restarts ranks itself, make the guard with
`adapters.process_group.guard_of_group()`, which uses the highest count of all ranks.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from typing import NamedTuple

from healthd.trainer.beacons.beacon import DEFAULT_DIRECTORY
from healthd.trainer.beacons.rank_placement import RankGpu, RankGroups, RankPlacement

NUMBER_MAX = 2**31  # a page has 63 bits, and no job has so many of anything

_log = logging.getLogger("healthd.trainer")


class RankEnvironment(NamedTuple):
    """A rank's placement, and the directory of its page."""

    place: RankPlacement
    beacon_directory: str


def read_environment(environ: Mapping[str, str]) -> RankEnvironment:
    """Read the variables that `healthctl launch`, torchrun or srun set.

    Invalid values that only describe the job (its groups, its attempt) are ignored with a warning. Invalid values that
    could take another rank's name raise.

    Raises:
        ValueError: RANK, WORLD_SIZE or LOCAL_RANK is not a number, or the rank exceeds the world size; names the
        variable.
    """
    node = _read_text(environ, "HEALTHD_NODE", "SLURMD_NODENAME") or socket.gethostname()
    rank = _read_number(environ, 0, "RANK", "SLURM_PROCID")
    world = _read_number(environ, 1, "WORLD_SIZE", "SLURM_NTASKS")
    if rank >= world:
        raise ValueError(f"RANK={rank} does not fit WORLD_SIZE={world}; ranks count from 0")
    place = RankPlacement(
        job=_read_text(environ, "HEALTHD_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID") or "job",
        attempt=_read_optional_number(environ, 0, "HEALTHD_ATTEMPT", "TORCHELASTIC_RESTART_COUNT"),
        rank=rank,
        world=world,
        local_rank=_read_number(environ, 0, "LOCAL_RANK", "SLURM_LOCALID"),
        node=node,
        groups=_read_groups(environ),
    )
    place = place._replace(gpu=_read_gpu(environ, place.local_rank))
    directory = environ.get("HEALTHD_BEACON_DIR") or DEFAULT_DIRECTORY
    return RankEnvironment(place, directory.replace("{node}", node))


def _read_groups(environ: Mapping[str, str]) -> RankGroups:
    role = _read_text(environ, "HEALTHD_ROLE", "ROLE_NAME")
    return RankGroups(
        "" if role == "default" else role,  # torchrun's value for an unnamed role
        _read_optional_number(environ, -1, "HEALTHD_PIPELINE_STAGE"),
        _read_optional_number(environ, -1, "HEALTHD_TENSOR_GROUP"),
        _read_optional_number(environ, -1, "HEALTHD_DATA_GROUP"),
        _read_optional_number(environ, -1, "HEALTHD_EXPERT_GROUP"),
    )


def _read_gpu(environ: Mapping[str, str], local_rank: int) -> RankGpu:
    """Return this rank's entry of CUDA_VISIBLE_DEVICES; a single entry is this rank's, whatever its local rank."""
    visible = [entry.strip() for entry in environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    mine = visible[local_rank] if local_rank < len(visible) else visible[0] if len(visible) == 1 else ""
    if mine.startswith(("GPU-", "MIG-")):
        return RankGpu(uuid=mine)
    number = _parse_whole_number(mine)
    return RankGpu() if number is None else RankGpu(number=number)


def _read_text(environ: Mapping[str, str], *names: str) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


def _read_number(environ: Mapping[str, str], default: int, *names: str) -> int:
    for name in names:
        text = environ.get(name)
        if text:
            if (number := _parse_whole_number(text)) is None:
                raise ValueError(f"{name}={text!r} is not a whole number")
            return number
    return default


def _read_optional_number(environ: Mapping[str, str], default: int, *names: str) -> int:
    """Return the first of these variables that is a number; -1 in any of them means not set."""
    for name in names:
        text = environ.get(name, "").strip()
        if text in ("", "-1"):
            continue
        if (number := _parse_whole_number(text)) is not None:
            return number
        _log.warning("%s=%.40r is not a whole number; ignored", name, text)
    return default


def _parse_whole_number(text: str) -> int | None:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(NUMBER_MAX))):
        return None
    return number if (number := int(text)) < NUMBER_MAX else None
